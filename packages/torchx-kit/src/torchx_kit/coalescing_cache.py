"""Answers that several threads share: 256 followers of an app need not ask 256 times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST = 64


class _Entry(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun = float("-inf")
        self.value: T | None = None
        self.error: Exception | None = None


class Shared(Generic[T]):
    """Values by key; who asks while another one does gets what is found out after that.

    So nobody gets what is older than the question, and of many who ask at once two do the work. A
    failure is shared in the same way: a service that is away keeps nobody waiting longer than one.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, find: Callable[[T | None], T | None], old: float = 0.0) -> T | None:
        """Returns a value.

        Args:
            key: what is asked for
            find: finds it out, given what was found last
            old: how many seconds before the question it may have been found out
        """
        asked = time.monotonic()
        with self._lock:
            if len(self._entries) > _MOST:
                self._entries = {
                    k: e
                    for k, e in self._entries.items()
                    if asked - e.begun < 60 or e.lock.locked()
                }
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            if entry.error is not None and entry.begun >= asked:
                raise entry.error
            if entry.error is not None or entry.begun < asked - old:
                entry.begun, entry.error = time.monotonic(), None
                try:
                    entry.value = find(entry.value)
                except Exception as e:
                    entry.error = e
                    raise
            return entry.value

    def last(self, key: str) -> T | None:
        """Returns what was found last, None if nothing was."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def forget(self, key: str) -> None:
        """Forgets what was found."""
        with self._lock:
            self._entries.pop(key, None)
