"""Reads a blocking iterator in a thread, and yields its items to a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

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
    # Items in tuples, and last the error that ended the iterator, or None.
    found: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(_MAX_BUFFERED)
    stopped = threading.Event()

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in make():
                room.acquire()
                if stopped.is_set():
                    break
                loop.call_soon_threadsafe(found.put_nowait, (item,))
        except BaseException as e:
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits
            loop.call_soon_threadsafe(found.put_nowait, error)

    threading.Thread(target=read, name="torchx async log", daemon=True).start()
    try:
        while isinstance(item := await found.get(), tuple):
            yield item[0]
            room.release()
        if item is not None:
            raise item
    finally:
        stopped.set()
        room.release()
