"""Tests of the logs of replicas: the files that are read or followed, and missing files."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.logs import FileLogs, ReplicaLog
from torchx_specs import AppState
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.api import DescribeAppResponse, Stream
from torchx_specs.schedulers.logs import LogQuery


@pytest.fixture
def base(tmp_path: Path) -> str:
    (tmp_path / "log.out").write_text("out 1\nout 2\n")
    (tmp_path / "log.err").write_text("err 1\n")
    return str(tmp_path / "log")


def read(
    base: str,
    streams: Stream | None = None,
    regex: str | None = None,
    follow: bool = False,
    is_running: bool = False,
    hint: str = "",
) -> Iterable[str]:
    log = ReplicaLog(LocalHost(), base, is_running, lambda: True, missing_hint=lambda: hint)
    return log.read(LogQuery(regex, streams=streams, should_tail=follow))


@pytest.mark.parametrize("follow", [False, True])
def test_streams(base: str, follow: bool) -> None:
    def lines(streams: Stream | None) -> list[str]:
        return list(read(base, streams, follow=follow, is_running=follow))

    assert lines(Stream.STDOUT) == ["out 1\n", "out 2\n"]
    assert lines(Stream.STDERR) == ["err 1\n"]
    assert (
        sorted(lines(Stream.COMBINED)) == sorted(lines(None)) == ["err 1\n", "out 1\n", "out 2\n"]
    )


@pytest.mark.parametrize("follow", [False, True])
def test_only_matching_lines_are_returned(base: str, follow: bool) -> None:
    assert list(read(base, regex="2", follow=follow, is_running=follow)) == ["out 2\n"]
    with pytest.raises(RequestError, match=r"'\(' is not a regular expression"):
        read(base, regex="(", follow=follow, is_running=follow)


def test_missing_log_of_an_ended_job_is_an_error(tmp_path: Path) -> None:
    base = str(tmp_path / "log")
    with pytest.raises(BackendError, match=r"no log at .*log\.out: it was removed.*; see x$"):
        read(base, hint="see x")
    with pytest.raises(BackendError, match=r"or the replica never started$"):
        read(base)


def test_missing_log_of_a_running_job_is_empty(tmp_path: Path) -> None:
    assert list(read(str(tmp_path / "log"), is_running=True)) == []


class AcmeLogs(FileLogs[Any]):
    """The logs of a scheduler with one replica that has ended.

    Args:
        base: Path of the log files, without their suffixes.
    """

    def __init__(self, base: str) -> None:
        super().__init__(SimpleNamespace(backend="acme", describe=self.describe))
        self.base = base
        self.queries: list[str] = []

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        self.queries.append(app_id)
        return DescribeAppResponse(app_id, AppState.RUNNING) if app_id == "app" else None

    def find(self, app_id: str, role: str, k: int) -> ReplicaLog:
        assert (app_id, role, k) == ("app", "main", 1)
        return ReplicaLog(LocalHost(), self.base, False, lambda: True)


def test_logs_pass_every_limit_on_except_times(base: str, recwarn: pytest.WarningsRecorder) -> None:
    logs = AcmeLogs(base)
    assert list(logs.read("app", "main", 1, LogQuery(last=2))) == ["out 2\n", "err 1\n"]
    query = LogQuery("1", streams=Stream.STDOUT)
    assert list(logs.read("app", "main", 1, query)) == ["out 1\n"]
    assert not recwarn
    with pytest.warns(UserWarning, match="acme does not record the times"):
        logs.read("app", "main", 1, LogQuery(since=datetime.datetime.now()))


def test_followers_of_logs_share_one_description(base: str) -> None:
    logs = AcmeLogs(base)
    assert logs.is_running("app")
    assert [logs.has_ended("app") for _ in range(3)] == [False] * 3
    assert logs.queries == ["app"]
    assert logs.has_ended("other")
    with pytest.raises(BackendError, match="app other does not exist"):
        logs.is_running("other")
