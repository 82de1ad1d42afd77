"""Waits for many apps of one scheduler: no wait has a thread, and one list serves all waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from torchx_runner.wait_for_state import FIRST_PAUSE, WaitTimeoutError, has_reached
from torchx_specs.schedulers.closing import ClosedError, Closing

if TYPE_CHECKING:
    from torchx_specs.model.handles import AppHandle
    from torchx_specs.model.status import AppState, AppStatus

#: If there are at least this many waits, list the scheduler's apps first, to query fewer of them.
LIST_FROM = 16
_GROWTH = 1.5


class Waits:
    """The waits for the apps of one scheduler.

    Args:
        status: Returns the status of an app.
        states: Returns the states of all apps that the scheduler lists, by handle.
    """

    def __init__(
        self,
        status: Callable[[AppHandle], Awaitable[AppStatus | None]],
        states: Callable[[], Awaitable[dict[AppHandle, AppState]]],
    ) -> None:
        self._status = status
        self._states = states
        self._waits: set[asyncio.Future[None]] = set()
        self._listing: asyncio.Task[dict[AppHandle, AppState]] | None = None
        self._listed_at = 0.0

    async def wait(
        self,
        handle: AppHandle,
        until: AppState | None,
        longest: float,
        timeout: float | None,
        closing: Closing,
    ) -> AppStatus | None:
        """Wait until an app has ended or reached a state; return its status, or None if missing.

        Args:
            handle: The app.
            until: A state at which to return early; None waits for the end.
            longest: The longest pause between two polls, in seconds.
            timeout: How long to wait, in seconds; None means without a limit.
            closing: Ends the wait when the scheduler is closed.

        Raises:
            WaitTimeoutError: The timeout expired.
            ClosedError: The scheduler was closed.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        closed: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not closed.done():
                closed.set_result(None)

        def close() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits
                loop.call_soon_threadsafe(end)

        self._waits.add(closed)
        try:
            with closing.calling(close):
                pause = FIRST_PAUSE
                while True:
                    is_closed = closed.done()
                    is_late = deadline is not None and loop.time() >= deadline
                    listed = None if is_closed or is_late else (await self._listed()).get(handle)
                    if listed is None or has_reached(listed, until):
                        status = await self._status(handle)
                        if status is None or has_reached(status.state, until):
                            return status
                        if is_closed:
                            raise ClosedError()
                        if is_late:
                            raise WaitTimeoutError(handle, timeout or 0, status)
                    # All waits with the same pause end it at the same time, so that they use one
                    # list of apps.
                    due = loop.time() // pause * pause + pause
                    due = due if deadline is None else min(due, deadline)
                    await asyncio.wait({closed}, timeout=max(due - loop.time(), 0))
                    if closed.cancelled():
                        raise asyncio.CancelledError
                    pause = min(pause * _GROWTH, longest)
        finally:
            self._waits.discard(closed)

    def close(self) -> None:
        """Cancel all waits."""
        for future in (*self._waits, self._listing):
            if future is not None:
                future.cancel()

    async def _listed(self) -> dict[AppHandle, AppState]:
        """Return the states of the listed apps; an empty dictionary if there are few waits.

        Apps that are not listed are queried one by one, because a scheduler may fail to list its
        apps, or list only some of them.
        """
        if len(self._waits) < LIST_FROM:
            return {}
        age = asyncio.get_running_loop().time() - self._listed_at
        if self._listing is None or (self._listing.done() and age > FIRST_PAUSE):
            self._listing = asyncio.create_task(self._list())
        return await asyncio.shield(self._listing)

    async def _list(self) -> dict[AppHandle, AppState]:
        try:
            return await self._states()
        except Exception:
            return {}
        finally:
            self._listed_at = asyncio.get_running_loop().time()
