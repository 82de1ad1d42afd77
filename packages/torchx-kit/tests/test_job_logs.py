"""Tests of the logs of replicas: the files that are read or followed, and missing files."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.logs import FileLogsMixin, ReplicaLog, replica_log, warn_if_limited_by_time
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.api import Stream


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
    return replica_log(log, streams, regex, follow=follow)


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


def test_time_limits_are_ignored_with_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    warn_if_limited_by_time("slurm", None, None)
    assert not recwarn
    with pytest.warns(UserWarning, match="slurm does not record the times"):
        warn_if_limited_by_time("slurm", datetime.datetime.now(), None)


class Reader(FileLogsMixin):
    """A scheduler with the log of one replica."""

    backend = "acme"

    def __init__(self, base: str) -> None:
        self._base = base

    def _replica_log(self, app_id: str, role_name: str, k: int) -> ReplicaLog:
        assert (app_id, role_name, k) == ("app", "main", 1)
        return ReplicaLog(LocalHost(), self._base, False, lambda: True)


def test_scheduler_with_file_logs_passes_every_limit_on(base: str) -> None:
    reader = Reader(base)
    assert list(reader.log_iter("app", "main", 1, last=2)) == ["out 2\n", "err 1\n"]
    assert list(reader.log_iter("app", "main", 1, "1", streams=Stream.STDOUT)) == ["out 1\n"]
    with pytest.warns(UserWarning, match="acme does not record the times"):
        reader.log_iter("app", "main", 1, since=datetime.datetime.now())
