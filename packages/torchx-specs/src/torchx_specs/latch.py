"""An event that is set once, and that stays usable if a signal interrupts a wait."""

from __future__ import annotations

import contextlib
import threading


class Latch:
    """An event that is set once; thread-safe.

    If Ctrl-C interrupts ``threading.Event.wait()``, the lock of the Event may stay locked, and
    ``set()`` then waits for ever. A wait for a latch runs no Python code that could be interrupted.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._gate = threading.Lock()  # locked until the latch is set
        self._gate.acquire()

    def set(self) -> None:
        """Set the latch, and wake all waiting threads; may be called more than once."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # it is set already
            self._gate.release()

    def is_set(self) -> bool:
        """Return True once the latch was set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is set; return False if it is not set after a number of seconds."""
        if self._gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self.set()  # wake the next thread
        return self._is_set
