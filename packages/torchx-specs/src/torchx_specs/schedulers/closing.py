"""Ends what waits for a scheduler when another thread closes the scheduler.

A method that may wait for long takes the scheduler's :class:`Closing` when it is called, so that a
later ``Scheduler.close`` ends it. The next call gets a new object, because a closed scheduler may
be used again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from torchx_specs.errors import TorchXError
from torchx_specs.latch import Latch

T = TypeVar("T")


class ClosedError(TorchXError):
    """The scheduler was closed while a method waited."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("the scheduler was closed by another thread")


class Closing:
    """The next ``close`` of a scheduler; thread-safe."""

    def __init__(self) -> None:
        self._latch = Latch()
        self._lock = threading.RLock()  # a signal handler may close the scheduler
        self._callbacks: dict[object, Callable[[], object]] = {}

    def set(self) -> None:
        """End what waits; may be called more than once."""
        self._latch.set()
        with self._lock:
            for callback in list(self._callbacks.values()):
                callback()

    def is_set(self) -> bool:
        """Return True once the scheduler was closed."""
        return self._latch.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds.

        Raises:
            ClosedError: The scheduler is closed, or was closed meanwhile.
        """
        if self._latch.wait(seconds):
            raise ClosedError()

    @contextlib.contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call a function if the scheduler is closed in the body of the ``with`` statement.

        Args:
            callback: Ends the wait of this thread. It is called in another thread, but not after
                the body's end; it must not wait, and must not raise an exception.
        """
        key = object()
        with self._lock:
            self._callbacks[key] = callback
            if self._latch.is_set():
                callback()
        try:
            yield
        finally:
            with self._lock:
                del self._callbacks[key]

    def until_closed(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; after the scheduler was closed, an error ends the iteration quietly."""
        try:
            yield from items
        except Exception:
            if not self.is_set():
                raise


def closing_of(scheduler: Any) -> Closing:
    """Return the object that ``scheduler.close`` sets, for waits that begin now.

    Args:
        scheduler: A ``Scheduler``, whose ``__init__`` need not have been called.
    """
    closing: Closing = vars(scheduler).setdefault("_closing", Closing())
    return closing


def shut_down(response: Any) -> None:
    """End the reading of a response in another thread, as if the server had closed the connection.

    Args:
        response: A response of urllib3 that is not closed.
    """
    import socket  # imported here, so that start-up does not load it

    try:
        connection = socket.socket(fileno=os.dup(response.fileno()))
    except (OSError, ValueError):
        return  # the response was read to its end
    with connection, contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # close() would not end a read
