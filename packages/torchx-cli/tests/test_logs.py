"""Tests of log identifiers, of prefixes of lines, and of reading the logs of several replicas."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from patience import PATIENCE
from torchx_cli.logs.reader import LogReader, prefix_line
from torchx_cli.logs.replicas import find_role_replicas, parse_identifier
from torchx_runner import Runner
from torchx_specs import AppDef, Role
from torchx_specs.errors import RequestError
from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs
from torchx_specs.schedulers.parallel_logs import MAX_READ


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("local_cwd://s/app", ("local_cwd://s/app", None, None)),
        ("my-sched:///app", ("my-sched:///app", None, None)),
        ("k8s://s/ns:app", ("k8s://s/ns:app", None, None)),
        ("s://s/app/", ("s://s/app", None, None)),
        ("s://s/app/r", ("s://s/app", "r", None)),
        ("s://s/app/r/", ("s://s/app", "r", None)),
        ("s://s/app/r/0", ("s://s/app", "r", (0,))),
        ("s://s/app/r/0,2-4,", ("s://s/app", "r", (0, 2, 3, 4))),
        ("s://s/app/r/1,1/", ("s://s/app", "r", (1,))),
    ],
)
def test_identifier_selects_app_role_and_replicas(
    identifier: str, expected: tuple[Any, ...]
) -> None:
    assert tuple(parse_identifier(identifier)) == expected


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        "app",
        "s://app",
        "s://s/",
        "://s/a",
        "s://s//r",
        "a b://s/x",
        "s://s/a/r/x",
        "s://s/a/r/0/1",
    ],
)
def test_malformed_identifier_is_an_error(identifier: str) -> None:
    with pytest.raises(RequestError, match="is not of the form"):
        parse_identifier(identifier)


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ("0-30000000", "replicas '0-30000000': the ranges contain more than 1,000,000 replicas"),
        (",".join(["0-300000"] * 4), "the ranges contain more than 1,000,000 replicas"),
        ("1" * 5000, "an index has at most 9 digits"),
        ("4-2", "replicas '4-2': the first index is greater than the last one"),
    ],
)
def test_identifier_with_impossible_replicas_is_an_error(replicas: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_identifier(f"s://s/app/r/{replicas}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a\n", "P a\n"),
        ("a", "P a"),
        ("a\rb\n", "P a\rP b\n"),
        ("a\nb\n", "P a\nP b\n"),
        ("\n", "P \n"),
        ("a\n\nb", "P a\nP \nP b"),
        ("a\r\n", "P a\rP \n"),
        ("\ra\n", "\rP a\n"),
    ],
)
def test_prefix_follows_each_carriage_return_and_newline(line: str, expected: str) -> None:
    assert prefix_line("P ", line) == expected


def test_find_role_replicas_lists_one_role_or_all() -> None:
    app = AppDef("a", roles=[Role("x", image="", num_replicas=2), Role("y", image="")])
    assert find_role_replicas(app, None) == [("x", 0), ("x", 1), ("y", 0)]
    assert find_role_replicas(app, "y") == [("y", 0)]
    assert find_role_replicas(app, "z") == []


class LogRunner(Runner):
    """A runner whose logs are given; ``most`` is the greatest number of logs read at once.

    Reading a log that consists of the line ``fail`` raises an error.
    """

    def __init__(self, logs: dict[tuple[str, int], list[str]]) -> None:
        super().__init__("test", {})
        self.logs = logs
        self.reading = 0
        self.most = 0
        self._counting = threading.Lock()

    def log_lines(self, app_handle: str, role_name: str, k: int = 0, *args: Any, **kw: Any) -> Any:
        with self._counting:
            self.reading += 1
            self.most = max(self.most, self.reading)
        lines = self.logs[role_name, k]
        if lines == ["fail"]:
            raise RuntimeError(f"no log of {role_name}/{k}")
        yield from lines
        with self._counting:
            self.reading -= 1


def read(runner: LogRunner, options: LogQuery | None = None, stream: Any = None) -> str:
    stream = stream or io.StringIO()
    options = options or LogQuery()
    LogReader(runner.log_blocks, "s://s/a", options, stream).read_all(list(runner.logs))
    return str(stream.getvalue())


def test_logs_of_many_replicas_are_merged_in_whole_lines_by_few_threads() -> None:
    runner = LogRunner({("r", i): [f"{i} {n} {'x' * 50}\n" for n in range(200)] for i in range(40)})
    lines = read(runner).splitlines()
    assert len(lines) == 40 * 200
    for i in range(40):
        mine = [line for line in lines if line.startswith(f"r/{i} ")]
        assert mine == [f"r/{i} {i} {n} {'x' * 50}" for n in range(200)]
    assert runner.most <= MAX_READ


def test_followed_logs_are_read_at_the_same_time() -> None:
    barrier = threading.Barrier(20, timeout=PATIENCE)

    class WaitingForAll(LogRunner):
        def log_lines(self, *args: Any, **kw: Any) -> Any:
            barrier.wait()  # passes once all 20 logs are being read
            return iter(["one\n"])

    text = read(WaitingForAll({("r", i): [] for i in range(20)}), LogQuery(should_tail=True))
    assert text.count("one\n") == 20


class BlockLogs(Logs["BlockScheduler"]):
    def read_many(self, app_id: str, replicas: Any, query: LogQuery) -> Iterator[Any]:
        self.scheduler.calls.append((app_id, replicas, query))
        return iter(self.scheduler.blocks)


class BlockScheduler(Scheduler[Any]):
    """A scheduler that reads several logs at once, and records the calls."""

    features = SchedulerFeatures(logs=True, last=True)

    def __init__(self, blocks: list[Any]) -> None:
        super().__init__("blocks", "test")
        self.blocks = blocks
        self.calls: list[tuple[Any, ...]] = []

    @property
    def app_logs(self) -> BlockLogs:
        return BlockLogs(self)

    def _submit_dryrun(self, *args: Any) -> Any: ...
    def schedule(self, *args: Any) -> str:
        return ""

    def describe(self, *args: Any) -> None: ...
    def list(self, *args: Any) -> Any: ...
    def _cancel_existing(self, *args: Any) -> None: ...


def test_scheduler_reads_all_logs_in_one_call() -> None:
    scheduler = BlockScheduler([(("r", 1), ["a\n", "b\n"]), (("r", 0), ["c\n"])])
    runner = Runner("test", {"blocks": lambda session_name, **kw: scheduler})
    stream = io.StringIO()
    replicas = [("r", 0), ("r", 1)]
    options = LogQuery(regex="[bc]$", should_tail=True)
    reader = LogReader(runner.log_blocks, "blocks://s/a", options, stream)
    reader.read_all(replicas)
    assert stream.getvalue() == "r/1 b\nr/0 c\n"
    assert reader.lines == 2
    assert scheduler.calls == [("a", replicas, LogQuery(should_tail=True))]


def test_last_line_without_a_newline_gets_one() -> None:
    text = read(LogRunner({("r", 0): ["a\n", "b"], ("r", 1): ["c"]}))
    assert sorted(text.splitlines()) == ["r/0 a", "r/0 b", "r/1 c"]


def test_first_error_is_raised_after_the_other_logs_were_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = io.StringIO()
    runner = LogRunner({("r", 0): ["fail"], ("r", 1): ["fail"], ("r", 2): ["fine\n"]})
    with pytest.raises(RuntimeError, match="no log of r/"):
        read(runner, stream=stream)
    assert stream.getvalue() == "r/2 fine\n"
    assert sum("no log of r/" in r.message for r in caplog.records) == 1


@pytest.mark.parametrize("tail", [False, True])
def test_last_shows_the_last_lines_of_each_replica(tail: bool) -> None:
    runner = LogRunner({("r", 0): [f"{n}\n" for n in range(10)], ("r", 1): ["only\n"]})
    text = read(runner, LogQuery(last=2, should_tail=tail))
    assert sorted(text.splitlines()) == ["r/0 8", "r/0 9", "r/1 only"]


def test_following_the_last_lines_continues_with_added_lines() -> None:
    answers = iter([["1\n", "2\n", "3\n"], ["1\n", "2\n", "3\n", "4\n"]])

    class Growing(LogRunner):
        def log_lines(self, *args: Any, **kw: Any) -> Any:
            return iter(next(answers))

    text = read(Growing({("r", 0): []}), LogQuery(last=1, should_tail=True))
    assert text == "r/0 3\nr/0 4\n"


@pytest.mark.parametrize("tail", [False, True])
def test_unreadable_log_does_not_hide_the_last_lines_of_others(tail: bool) -> None:
    stream = io.StringIO()
    runner = LogRunner({("r", 0): ["fail"], ("r", 1): ["1\n", "2\n"]})
    with pytest.raises(RuntimeError, match="no log of r/0"):
        read(runner, LogQuery(last=1, should_tail=tail), stream)
    assert stream.getvalue() == "r/1 2\n"


@pytest.mark.parametrize("tail", [False, True])
def test_last_lines_are_read_once_by_a_scheduler_that_can(tail: bool) -> None:
    scheduler = BlockScheduler([(("r", 1), ["b\n"]), (("r", 0), ["a\n"])])
    runner = Runner("test", {"blocks": lambda session_name, **kw: scheduler})
    stream = io.StringIO()
    options = LogQuery(last=1, should_tail=tail)
    replicas = [("r", 0), ("r", 1)]
    LogReader(runner.log_blocks, "blocks://s/a", options, stream).read_all(replicas)
    # without following, the order of the replicas does not depend on which log was read first
    assert stream.getvalue() == ("r/1 b\nr/0 a\n" if tail else "r/0 a\nr/1 b\n")
    assert scheduler.calls == [("a", replicas, options)]


def test_last_lines_that_match_are_the_last_of_the_whole_log() -> None:
    scheduler = BlockScheduler([(("r", 0), ["a\n", "b 1\n", "b 2\n", "a\n"])])
    runner = Runner("test", {"blocks": lambda session_name, **kw: scheduler})
    stream = io.StringIO()
    options = LogQuery(last=1, regex="b")
    LogReader(runner.log_blocks, "blocks://s/a", options, stream).read_all([("r", 0)])
    assert stream.getvalue() == "r/0 b 2\n"
    assert scheduler.calls == [("a", [("r", 0)], LogQuery())]


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")])
def test_closed_stream_ends_the_reading(error: Exception) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    class Endless(LogRunner):
        def log_lines(self, *args: Any, **kw: Any) -> Any:
            while True:
                yield "line\n"

    with pytest.raises(BrokenPipeError):
        read(Endless({("r", 0): [], ("r", 1): []}), LogQuery(should_tail=True), Closed())


def test_stop_ends_the_reading() -> None:
    class Endless(LogRunner):
        def log_lines(self, *args: Any, **kw: Any) -> Any:
            while True:
                yield "line\n"

    class StoppingStream(io.StringIO):
        def write(self, text: str) -> int:
            threading.Thread(target=reader.stop).start()
            return super().write(text)

    runner = Endless({("r", 0): []})
    stream = StoppingStream()
    options = LogQuery(should_tail=True)
    reader = LogReader(runner.log_blocks, "s://s/a", options, stream)
    reader.read_all(list(runner.logs))
    assert stream.getvalue().startswith("r/0 line\n")


def test_no_replicas_give_no_lines() -> None:
    assert read(LogRunner({})) == ""
