"""A cache in which concurrent callers share one query.

For example, 256 threads that follow the logs of one app do not cause 256 status requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Above this number of entries, entries that were not queried for _IDLE_SECONDS are dropped.
_MAX_ENTRIES = 64
_IDLE_SECONDS = 60


class _Entry(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queried_at = float("-inf")
        self.value: T | None = None
        self.error: Exception | None = None


class CoalescingCache(Generic[T]):
    """A cache of values by key; callers that wait for the same key share one query.

    A caller that arrives during a query waits for the next one, because the running query may have
    read the service before the call. So no caller gets a value that is older than its call (or than
    ``max_age``), and any number of simultaneous callers cause at most two queries. An error is
    shared in the same way: if a service is unreachable, all callers wait for one time-out, not one
    after another.

    All methods may be called from any thread.

    Args:
        clock: Function that returns a time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry[T]] = {}
        self._lock = threading.Lock()

    def get(
        self, key: str, query: Callable[[T | None], T | None], max_age: float = 0.0
    ) -> T | None:
        """Return the value for a key; query it first if the cached value is too old.

        Args:
            key: Identifies the value, such as the id of an app.
            query: Returns the current value; its argument is the last value, None if there is none.
            max_age: How old the value may be at the time of the call, in seconds. An error is not
                kept: only the callers that waited for the failed query get it.

        Raises:
            Exception: The error of the query.
        """
        called_at = self._clock()
        entry = self._entry(key, called_at)
        with entry.lock:
            if entry.error is not None and entry.queried_at >= called_at:
                raise entry.error
            if entry.error is not None or entry.queried_at < called_at - max_age:
                entry.queried_at, entry.error = self._clock(), None
                try:
                    entry.value = query(entry.value)
                except Exception as e:
                    entry.error = e
                    raise
            return entry.value

    def last(self, key: str) -> T | None:
        """Return the last value of a key without a query, None if there is none."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def forget(self, key: str) -> None:
        """Remove the value of a key."""
        with self._lock:
            self._entries.pop(key, None)

    def _entry(self, key: str, now: float) -> _Entry[T]:
        with self._lock:
            if len(self._entries) > _MAX_ENTRIES:
                self._entries = {
                    other: entry
                    for other, entry in self._entries.items()
                    if now - entry.queried_at < _IDLE_SECONDS or entry.lock.locked()
                }
            return self._entries.setdefault(key, _Entry())
