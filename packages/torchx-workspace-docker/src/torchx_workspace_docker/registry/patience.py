"""The time limit of an operation on a registry that makes no progress.

An operation, such as the download of a blob, consists of requests, each with several attempts. All
of them share one time limit. Otherwise, a registry that sends single bytes could use the whole time
in every attempt. An accepted response, and each MB of a blob, counts as progress and starts the
time limit again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: The time limit of an operation without progress, in seconds. Pauses between two attempts do not
#: count.
DEADLINE = 120.0


class Patience:
    """The time limit of one operation.

    Args:
        clock: Function that returns a time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self.restart()

    def restart(self) -> None:
        """Start the time limit again, because the operation has made progress."""
        self._until = self._clock() + DEADLINE

    def pause(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Wait with ``sleep``; the pause does not count against the time limit."""
        began = self._clock()
        sleep(seconds)
        self._until += self._clock() - began

    def left(self) -> float:
        """Return the seconds until the time limit; 0 or less if it has passed."""
        return self._until - self._clock()


_current: ContextVar[Patience | None] = ContextVar("torchx_registry_patience", default=None)


def current() -> Patience:
    """Return the time limit of the current operation; without an operation, a new time limit."""
    return _current.get() or Patience()


@contextmanager
def operation(clock: Callable[[], float] = time.monotonic) -> Iterator[Patience]:
    """Return a context whose requests share a time limit; nested contexts share the outer limit.

    Args:
        clock: Function that returns a time in seconds.
    """
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    patience = Patience(clock)
    token = _current.set(patience)
    try:
        yield patience
    finally:
        _current.reset(token)
