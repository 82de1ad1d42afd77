"""Tests of the cache in which concurrent callers share queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from patience import PATIENCE, wait_for
from torchx_kit.coalescing_cache import CoalescingCache


class TimedCache(CoalescingCache[int]):
    """A cache that records the times at which callers and queries have begun."""

    def __init__(self) -> None:
        super().__init__(self._now)
        self.times: list[float] = []

    def _now(self) -> float:
        self.times.append(time.monotonic())
        return self.times[-1]


def get_concurrently(
    cache: TimedCache, threads: int, query: Callable[[int | None], int]
) -> tuple[Future[int | None], list[Future[int | None]], int]:
    """Call ``get`` in one thread, and in the other threads while the first query runs.

    Returns:
        The result of the first caller, the results of the other callers, and the number of queries.
    """
    gate = threading.Event()
    queries = []

    def slow_query(last: int | None) -> int:
        queries.append(last)
        gate.wait(PATIENCE)
        return query(last)

    with ThreadPoolExecutor(threads) as pool:
        first = pool.submit(cache.get, "a", slow_query)
        wait_for(lambda: queries)
        began = len(cache.times)
        others = [pool.submit(cache.get, "a", slow_query) for _ in range(threads - 1)]
        wait_for(lambda: len(cache.times) == began + threads - 1)
        gate.set()
    return first, others, len(queries)


def test_concurrent_callers_cause_two_queries() -> None:
    cache = TimedCache()
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
    cache = TimedCache()

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
