"""A function whose result is computed once, also if threads call it at the same time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class once(Generic[R]):  # noqa: N801 - a decorator
    """Decorates a function without parameters: only the first call computes the result.

    Other threads wait for it. After an exception, the next call computes the result again.
    :meth:`cache_clear` forgets the result, as that of :func:`functools.lru_cache` does.

    >>> list_ = once(list)
    >>> list_() is list_()
    True
    """

    def __init__(self, function: Callable[[], R]) -> None:
        functools.update_wrapper(self, function)
        self._lock = threading.RLock()
        self._cached = functools.lru_cache(maxsize=1)(function)
        self.cache_clear = self._cached.cache_clear

    def __call__(self) -> R:
        """Return the result."""
        with self._lock:
            return self._cached()
