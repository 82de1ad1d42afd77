"""Tests of the cache in which concurrent callers share queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from torchx_kit.coalescing_cache import CoalescingCache


def get_concurrently(
    cache: CoalescingCache[int], threads: int, query: Callable[[int | None], int]
) -> tuple[Future[int | None], list[Future[int | None]], int]:
    """Call ``get`` in one thread, and in the other threads while the first query runs.

    Returns:
        The result of the first caller, the results of the other callers, and the number of queries.
    """
    gate = threading.Event()
    queries = []
    callers = []

    def call() -> int | None:
        callers.append(True)
        return cache.get("a", slow_query)

    def slow_query(last: int | None) -> int:
        queries.append(last)
        gate.wait(5)
        return query(last)

    with ThreadPoolExecutor(threads) as pool:
        first = pool.submit(call)
        while not queries:
            time.sleep(0.001)
        others = [pool.submit(call) for _ in range(threads - 1)]
        while len(callers) < threads:
            time.sleep(0.001)
        time.sleep(0.2)  # until then, all callers wait for the lock
        gate.set()
    return first, others, len(queries)


def test_concurrent_callers_cause_two_queries() -> None:
    cache: CoalescingCache[int] = CoalescingCache()
    first, others, queries = get_concurrently(cache, 32, lambda last: (last or 0) + 1)
    assert first.result() == 1
    # The others called after the first query had begun, so its value may be older than their call.
    assert {other.result() for other in others} == {2}
    assert queries == 2


def test_later_caller_gets_a_new_value_unless_max_age_allows_the_cached_one() -> None:
    cache: CoalescingCache[int] = CoalescingCache()
    assert [cache.get("a", lambda last: (last or 0) + 1) for _ in range(3)] == [1, 2, 3]
    assert cache.get("a", lambda last: 9, max_age=60) == 3
    assert cache.last("a") == 3
    cache.forget("a")
    assert cache.last("a") is None
    assert cache.get("a", lambda last: 9, max_age=60) == 9


def test_error_is_not_cached() -> None:
    cache: CoalescingCache[int] = CoalescingCache()

    def fail(last: int | None) -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", lambda last: 1, max_age=60) == 1


def test_error_is_shared_by_callers_that_waited_for_its_query() -> None:
    cache: CoalescingCache[int] = CoalescingCache()

    def fail(last: int | None) -> int:
        raise OSError("unreachable")

    first, others, queries = get_concurrently(cache, 16, fail)
    assert all(isinstance(result.exception(), OSError) for result in [first, *others])
    assert queries == 2
    assert cache.get("a", lambda last: 1) == 1


def test_idle_entries_are_dropped() -> None:
    cache: CoalescingCache[int] = CoalescingCache()
    for i in range(200):
        cache.get(str(i), lambda last: 1)
        cache._entries[str(i)].queried_at -= 100
    assert len(cache._entries) < 100
