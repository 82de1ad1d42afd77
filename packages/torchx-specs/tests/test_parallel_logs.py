"""Tests of reading the logs of several replicas at once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

from torchx_specs.schedulers import parallel_logs as parallel
from torchx_specs.schedulers.parallel_logs import Replica, read_in_threads

SECONDS = 10


def collect(
    blocks: Iterator[tuple[Replica, Iterable[str] | Exception]],
) -> tuple[dict[Replica, list[str]], dict[Replica, Exception]]:
    """Return the lines and the errors of each replica."""
    lines: dict[Replica, list[str]] = defaultdict(list)
    errors: dict[Replica, Exception] = {}
    for replica, block in blocks:
        if isinstance(block, Exception):
            errors[replica] = block
        else:
            lines[replica] += block
    return lines, errors


@pytest.mark.parametrize("should_tail", [False, True])
def test_every_line_of_every_replica_arrives_in_order(should_tail: bool) -> None:
    replicas = [("trainer", k) for k in range(20)]

    def read(role: str, k: int) -> Iterator[str]:
        return (f"{role}/{k} line {number}\n" for number in range(1300))

    lines, errors = collect(read_in_threads(read, replicas, should_tail))
    assert errors == {}
    assert lines == {replica: list(read(*replica)) for replica in replicas}


def test_an_error_ends_the_log_of_its_replica_only() -> None:
    def read(role: str, k: int) -> Iterator[str]:
        yield "first\n"
        if k == 1:
            raise ValueError("no log")
        yield "second\n"

    lines, errors = collect(read_in_threads(read, [("r", 0), ("r", 1), ("r", 2)]))
    assert lines[("r", 0)] == lines[("r", 2)] == ["first\n", "second\n"]
    assert lines[("r", 1)] == ["first\n"]
    assert [str(error) for error in errors.values()] == ["no log"]


def test_more_followed_logs_than_threads_are_all_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parallel, "MAX_FOLLOWED", 2)
    is_third_taken = threading.Event()

    def replicas() -> Iterator[Replica]:
        for k in range(5):
            if k == 2:
                is_third_taken.set()
            yield "r", k

    def read(role: str, k: int) -> Iterator[str]:
        is_third_taken.wait()
        yield f"{k}\n"

    lines, _ = collect(read_in_threads(read, replicas(), True))
    assert lines == {("r", k): [f"{k}\n"] for k in range(5)}
    assert caplog.messages == ["following 2 replicas at once; the others follow as those end"]


def test_no_replicas_yield_nothing() -> None:
    assert list(read_in_threads(lambda role, k: [], [])) == []


def test_a_followed_line_arrives_before_its_log_ends() -> None:
    release = threading.Event()

    def read(role: str, k: int) -> Iterator[str]:
        yield "early\n"
        release.wait(SECONDS)
        yield "late\n"

    blocks = read_in_threads(read, [("r", 0)], should_tail=True)
    assert next(blocks) == (("r", 0), ["early\n"])
    release.set()
    assert collect(blocks)[0] == {("r", 0): ["late\n"]}


def test_the_number_of_logs_read_at_once_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "MAX_READ", 2)
    lock = threading.Lock()
    open_logs: set[int] = set()
    most = 0

    def read(role: str, k: int) -> Iterator[str]:
        nonlocal most
        with lock:
            open_logs.add(k)
            most = max(most, len(open_logs))
        yield "line\n"
        with lock:
            open_logs.discard(k)

    collect(read_in_threads(read, [("r", k) for k in range(10)]))
    assert most <= 2


def test_closing_the_generator_ends_the_readers() -> None:
    taken: list[int] = []
    ended = threading.Event()

    def read(role: str, k: int) -> Iterator[str]:
        taken.append(k)
        try:
            while True:
                yield "line\n"
        finally:
            ended.set()

    blocks = read_in_threads(read, [("r", 0)], should_tail=True)
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert ended.wait(SECONDS)
    assert taken == [0]
