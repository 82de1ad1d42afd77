"""Tests of copies of logs in log sinks: written once, continued after a kill, and read again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import torchx_kit.plugin
from patience import wait_for
from torchx_cli.logs.copies import required_copies
from torchx_cli.runner_context import open_runner
from torchx_log_sinks import copies
from torchx_log_sinks.layout import app_folder, replica_folder, segments, split_lines
from torchx_log_sinks.saver import LogSaver
from torchx_specs import AppState
from torchx_specs.errors import RequestError
from torchx_specs.hookspecs import LogSinkPlugin, hookimpl
from torchx_specs.model.status import ReplicaStatus, RoleStatus
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import ALL

HANDLE = "fake://torchx/job-0"


class MemorySink:
    """A sink that stores data in memory; its next ``failures`` writes raise ``error``."""

    def __init__(self, stored: dict[str, bytes]) -> None:
        self.stored = stored
        self.failures = 0
        self.error: Exception = ConnectionError("no route")
        self.writes = 0

    def write(self, name: str, data: bytes, /) -> None:
        self.writes += 1
        if self.failures:
            self.failures -= 1
            raise self.error
        self.stored[name] = data

    def read(self, name: str, /) -> bytes:
        try:
            return self.stored[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def list(self, folder: str, /) -> Iterator[str]:
        yield from [name for name in self.stored if name.startswith(f"{folder}/")]


class SinkPlugin:
    """Registers the sink ``mem``, and ``*``; all URLs with the same host share one sink."""

    def __init__(self) -> None:
        self.sinks: dict[str, MemorySink] = {}

    def __getitem__(self, host: str) -> MemorySink:
        return self.sinks.setdefault(host, MemorySink({}))

    @hookimpl
    def torchx_log_sinks(self) -> Iterable[LogSinkPlugin]:
        yield LogSinkPlugin(ALL, copies.Copies)
        yield LogSinkPlugin("mem", lambda url: self[urlsplit(url).hostname or ""])


@pytest.fixture
def sinks(plugin: Any, tmp_path: Path) -> SinkPlugin:
    found = SinkPlugin()
    get_manager().register(found, "sinks")
    (tmp_path / ".torchxconfig").write_text("[log_sink:first]\nurl = mem://first/x\n")
    return found


@pytest.fixture
def sink(sinks: SinkPlugin) -> MemorySink:
    return sinks["first"]


@pytest.fixture
def app(cli: Any, plugin: Any, components: str, sinks: SinkPlugin) -> Any:
    """Submit an app with two replicas, and return it as an ended app."""
    cli("run", "comp.py:job", "--replicas", "2")
    found = plugin.apps["job-0"]
    found.states = [AppState.SUCCEEDED]
    return found


def copy_of(sink: MemorySink, index: int = 0, stream: str = "combined") -> list[str]:
    folder = replica_folder(app_folder(HANDLE), "main", index)
    found = segments(list(sink.list(folder)), folder, stream)
    return [line.decode() for s in found for line in split_lines(sink.read(s.name))]


# -- torchx log --save and --saved, and torchx run


def test_save_stores_the_logs_of_all_replicas(cli: Any, app: Any, sink: MemorySink) -> None:
    result = cli("log", "--save", HANDLE)
    assert (result.code, result.out) == (0, "")
    assert "first (mem://first/x): 2 lines added; the copy is complete" in result.err
    assert copy_of(sink) == ["hello from 0\n"]
    assert copy_of(sink, 1) == ["hello from 1\n"]
    assert "0 lines added; the copy is complete" in cli("log", "--save", HANDLE).err


def test_save_of_a_running_app_continues_later(cli: Any, app: Any, sink: MemorySink) -> None:
    app.states = [AppState.RUNNING]
    app.logs["main", 0] = ["1\n", "2"]
    assert "has what the app has written so far" in cli("log", "--save", HANDLE).err
    assert copy_of(sink) == ["1\n"]
    app.states = [AppState.SUCCEEDED]
    app.logs["main", 0] = ["1\n", "2\n", "3"]
    cli("log", "--save", "-f", HANDLE)
    assert copy_of(sink) == ["1\n", "2\n", "3\n"]


def test_streams_are_saved_apart_if_their_order_changes(
    cli: Any, app: Any, sink: MemorySink, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = type(plugin.create("s"))
    monkeypatch.setattr(scheduler, "features", replace(scheduler.features, log_order=False))
    cli("log", "--save", HANDLE)
    assert copy_of(sink, 0, "stdout") == copy_of(sink, 0, "stderr") == ["hello from 0\n"]
    assert cli("log", "--saved", "--stderr", f"{HANDLE}/main/1").out == "main/1 hello from 1\n"


def test_log_of_a_deleted_app_shows_the_copy(cli: Any, app: Any, sinks: SinkPlugin) -> None:
    app.logs["main", 1] = ["1\n", "2\n", "\x1b[2J3\n"]
    cli("log", "--save", HANDLE)
    assert cli("delete", HANDLE).code == 0
    result = cli("log", HANDLE)
    assert result.code == 0
    assert result.out == "main/0 hello from 0\nmain/1 1\nmain/1 2\nmain/1 \x1b[2J3\n"
    assert f"{HANDLE} no longer exists" in result.err
    assert "these are the logs in first (mem://first/x)" in result.err
    assert cli("log", "-n", "1", "--regex", "^[12]", f"{HANDLE}/main/1").out == "main/1 2\n"
    assert cli("log", "@1/main/0").out == "main/0 hello from 0\n"
    assert "has no replica 2" in cli("log", f"{HANDLE}/main/2").error
    assert "both streams together" in cli("log", "--stderr", HANDLE).error
    assert "has no times of lines" in cli("log", "--since", "1h", HANDLE).error


def test_copy_is_not_complete_if_the_scheduler_lost_lines(
    cli: Any, app: Any, sink: MemorySink
) -> None:
    app.states = [AppState.RUNNING]
    app.logs["main", 0] = ["1\n", "2\n"]
    cli("log", "--save", HANDLE)
    app.states = [AppState.SUCCEEDED]
    app.logs["main", 0] = ["7\n"]
    assert "has what the app has written so far" in cli("log", "--save", HANDLE).err
    result = cli("log", "--saved", f"{HANDLE}/main/0")
    assert result.out == "main/0 1\nmain/0 2\nmain/0 7\n"
    assert "this copy may lack lines" in result.err


def test_wrong_url_is_not_tried_again(
    cli: Any, app: Any, sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def refused(name: str) -> bytes:
        reads.append(name)
        raise RequestError("install s3fs")

    monkeypatch.setattr(sink, "read", refused)
    result = cli("log", "--save", HANDLE)
    assert (result.code, result.error) == (3, "first (mem://first/x): install s3fs")
    assert len(reads) == len(set(reads))


def test_failed_replicas_of_a_copy(cli: Any, app: Any) -> None:
    states = [AppState.SUCCEEDED, AppState.FAILED]
    replicas = [ReplicaStatus(k, state, "main", "h") for k, state in enumerate(states)]
    app.states, app.roles = [AppState.FAILED], [RoleStatus("main", replicas)]
    cli("log", "--save", HANDLE)
    assert cli("log", "--saved", "--failed", HANDLE).out == "main/1 hello from 1\n"


def test_deleted_app_without_a_copy_does_not_exist(cli: Any, app: Any) -> None:
    cli("delete", HANDLE)
    result = cli("log", HANDLE)
    assert result.code == 1
    assert "no sink [log_sink:NAME] has a copy" in cli("log", "--saved", HANDLE).error


def test_save_needs_a_sink_and_no_selection(cli: Any, app: Any, tmp_path: Path) -> None:
    for words in (["-n", "1"], ["--stderr"], ["--saved"], ["--failed"], ["--regex", "x"]):
        result = cli("log", "--save", *words, HANDLE)
        assert (result.code, "only -f can be combined" in result.error) == (2, True)
    (tmp_path / ".torchxconfig").write_text("")
    assert (
        "no log sink is configured; add a section such as [log_sink:disk]"
        in cli("log", "--save", HANDLE).error
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("bad = nosuch://x", "no plugin handles URLs that begin with nosuch://"),
        ("bad = /data/logs", "'/data/logs' is not a URL"),
    ],
)
def test_unusable_sink_is_one_warning(
    cli: Any, app: Any, sink: MemorySink, tmp_path: Path, line: str, problem: str
) -> None:
    (tmp_path / ".torchxconfig").write_text(f"[log_sinks]\n{line}\nfirst = mem://first/x\n")
    result = cli("log", "--save", HANDLE)
    assert result.code == 0
    assert f"[log_sink:bad] is ignored: {problem}" in result.err
    assert copy_of(sink) == ["hello from 0\n"]


def test_missing_plugin_is_a_warning_of_run_and_an_error_of_save(
    cli: Any, app: Any, tmp_path: Path
) -> None:
    get_manager().block(["sinks"])
    get_manager().register(torchx_kit.plugin, "kit")
    problem = "[log_sink:first]: no plugin saves logs; run: pip install torchx-log-sinks"
    result = cli("run", "--wait", "-s", "fake", "comp.py:job")
    assert (result.code, result.err.count(problem)) == (0, 1)
    for option in ("--save", "--saved"):
        result = cli("log", option, HANDLE)
        assert (result.code, result.error) == (2, problem)


def test_run_saves_the_logs_while_it_waits(cli: Any, app: Any, sinks: SinkPlugin) -> None:
    result = cli("run", "--wait", "-s", "fake", "comp.py:job", "--name", "again")
    assert result.code == 0
    handle = result.out.strip()
    assert cli("log", "--saved", handle).out == "main/0 hello from 0\n"


def saver(**pauses: float) -> LogSaver:
    """Save the logs of the app without a command, and return the saver."""
    with open_runner() as runner:
        replicas = [("main", 0), ("main", 1)]
        sink: Any = required_copies().sinks[0]
        found = LogSaver(runner, HANDLE, replicas, sink, follow=False, **pauses)
        found.start()
        found.join()
    return found


def test_sink_that_fails_for_a_while_loses_nothing(app: Any, sink: MemorySink) -> None:
    sink.failures = 3
    assert saver(first_pause=0).is_complete
    assert copy_of(sink) == ["hello from 0\n"]


def test_sink_is_not_retried_after_the_limit(app: Any, sink: MemorySink) -> None:
    sink.failures = 2
    error = saver(retry_seconds=0).error
    assert str(error) == "first (mem://first/x): ConnectionError: no route"
    assert (sink.writes, sink.stored) == (1, {})


def test_sink_that_fails_is_one_warning_and_not_the_end_of_the_job(
    cli: Any, app: Any, sink: MemorySink
) -> None:
    sink.failures, sink.error = 1_000_000, RequestError("no library")  # it is not retried
    result = cli("run", "--wait", "-s", "fake", "comp.py:job")
    assert result.code == 0
    assert result.err.count("the copy of the logs of") == 1
    problem = "first (mem://first/x): no library"
    assert f"incomplete: {problem}; 'torchx log --save' continues it" in result.err
    result = cli("log", "--save", HANDLE)
    assert (result.code, result.error) == (3, problem)
    assert "WARNING" not in result.err


def test_interrupt_does_not_wait_for_the_logs_of_an_app_that_continues(
    app: Any, sink: MemorySink, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def endless(self: Any, *args: Any, **options: Any) -> Iterator[str]:
        while not release.wait(0.01):
            yield f"{'x' * 100_000}\n"  # three lines fill a segment

    monkeypatch.setattr(type(plugin.create("s")), "log_iter", endless)
    app.states = [AppState.RUNNING]

    def interrupted() -> None:
        found = required_copies()
        with open_runner() as runner, found.saving():
            found.start(runner, HANDLE, [("main", 0), ("main", 1)])
            wait_for(lambda: copy_of(sink))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    release.set()  # the context has ended although the log has not
    assert copy_of(sink)


def test_sink_that_hangs_delays_the_end_of_a_run_by_a_limit(
    cli: Any, app: Any, sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "SILENCE_SECONDS", 0.2)
    release = threading.Event()
    monkeypatch.setattr(sink, "write", lambda *args: release.wait())
    result = cli("run", "--wait", "-s", "fake", "comp.py:job")
    release.set()
    assert result.code == 0
    assert "no line was added for 0.2 s" in result.err
