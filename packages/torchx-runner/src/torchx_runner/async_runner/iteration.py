"""Reads a blocking iterator in a thread, and yields its items to a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

#: The thread stops reading while this many items wait for the coroutine.
_MAX_BUFFERED = 1024


async def iterate(make: Callable[[], Iterable[T]]) -> AsyncIterator[T]:
    """Yield the items of an iterator that a thread reads.

    The thread is a daemon. If the coroutine stops early, the thread ends at the next item.

    Args:
        make: Returns the iterator; called in the thread.

    Raises:
        Exception: The exception of ``make`` or of the iterator.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    reader = _Reader(make, lambda: loop.call_soon_threadsafe(ready.set))
    threading.Thread(target=reader.read, name="torchx async log", daemon=True).start()
    try:
        while True:
            await ready.wait()
            ready.clear()
            while reader.items:
                yield reader.items.popleft()
                reader.room.release()
            if reader.ended and not reader.items:
                if reader.error is not None:
                    raise reader.error
                return
    finally:
        reader.stop()


class _Reader(Generic[T]):
    """Reads the items in the thread, and keeps them for the coroutine.

    Args:
        make: Returns the iterator.
        notify: Wakes the coroutine; raises RuntimeError if its loop is closed.
    """

    def __init__(self, make: Callable[[], Iterable[T]], notify: Callable[[], object]) -> None:
        self._make = make
        self._notify = notify
        self._stopped = False
        self.items: deque[T] = deque()
        self.room = threading.Semaphore(_MAX_BUFFERED)
        self.error: BaseException | None = None
        self.ended = False

    def read(self) -> None:
        """Read all items, until the end or until :meth:`stop`."""
        try:
            for item in self._make():
                self.room.acquire()
                if self._stopped:
                    break
                self.items.append(item)
                self._notify()
        except BaseException as e:
            self.error = e
        self.ended = True
        try:
            self._notify()
        except RuntimeError:  # the loop is closed, so no coroutine waits
            pass

    def stop(self) -> None:
        """Let the thread end at the next item."""
        self._stopped = True
        self.room.release()
