"""Answers for many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from torchx_kit.coalescing_cache import Shared


def ask_at_once(
    shared: Shared[int], threads: int, find: Callable[[int | None], int]
) -> tuple[Future[int], list[Future[int]], int]:
    """Asks while the first is being answered; returns the first, the others, and how often it was
    asked for.
    """
    gate = threading.Event()
    calls = []
    asking = []

    def ask() -> int:
        asking.append(True)
        return shared.get("a", find_late)

    def find_late(last: int | None) -> int:
        calls.append(last)
        gate.wait(5)
        return find(last)

    with ThreadPoolExecutor(threads) as pool:
        first = pool.submit(ask)
        while not calls:
            time.sleep(0.001)
        others = [pool.submit(ask) for _ in range(threads - 1)]
        while len(asking) < threads:
            time.sleep(0.001)
        time.sleep(0.2)  # from there it is a step to the wait
        gate.set()
    return first, others, len(calls)


def test_many_who_ask_at_once_are_answered_by_two() -> None:
    shared: Shared[int] = Shared()
    first, others, calls = ask_at_once(shared, 32, lambda last: (last or 0) + 1)
    assert first.result() == 1
    # they asked after the first one had begun: its answer would be older than their question
    assert {other.result() for other in others} == {2}
    assert calls == 2


def test_who_asks_again_gets_what_is_new() -> None:
    shared: Shared[int] = Shared()
    assert [shared.get("a", lambda last: (last or 0) + 1) for _ in range(3)] == [1, 2, 3]
    assert shared.get("a", lambda last: 9, old=60) == 3
    assert shared.last("a") == 3
    shared.forget("a")
    assert shared.last("a") is None
    assert shared.get("a", lambda last: 9, old=60) == 9


def test_a_failure_is_not_kept() -> None:
    shared: Shared[int] = Shared()

    def fail(last: int | None) -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        shared.get("a", fail)
    assert shared.get("a", lambda last: 1, old=60) == 1


def test_a_failure_is_shared_by_those_who_asked_before_it() -> None:
    shared: Shared[int] = Shared()

    def fail(last: int | None) -> int:
        raise OSError("away")

    first, others, calls = ask_at_once(shared, 16, fail)
    assert all(isinstance(one.exception(), OSError) for one in [first, *others])
    assert calls == 2
    assert shared.get("a", lambda last: 1) == 1


def test_old_answers_are_let_go() -> None:
    shared: Shared[int] = Shared()
    for i in range(200):
        shared.get(str(i), lambda last: 1)
        shared._entries[str(i)].begun -= 100
    assert len(shared._entries) < 100
