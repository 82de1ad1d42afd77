"""Waits for many apps of one scheduler: one task polls for all waits, so no wait has a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchx_runner.wait_for_state import FIRST_PAUSE, WaitTimeoutError, has_reached
from torchx_specs.model.status import AppState, AppStatus
from torchx_specs.schedulers.closing import ClosedError

if TYPE_CHECKING:
    from torchx_specs.model.handles import AppHandle
    from torchx_specs.schedulers.closing import Closing

#: If at least this many apps are due, list the scheduler's apps first, to query fewer of them.
LIST_FROM = 16
_GROWTH = 1.5


@dataclass(eq=False)
class Wait:
    """The wait of one caller for one app.

    Args:
        handle: The app.
        until: A state at which to end the wait early; None waits for the end of the app.
        longest: The longest pause between two polls, in seconds.
        done: Gets the app's status at the end of the wait; None if the app does not exist.
        due: When to poll next, in the time of the event loop.
        pause: The pause after the next poll, in seconds.
        is_closed: Whether the scheduler was closed, so that the next poll is the last one.
    """

    handle: AppHandle
    until: AppState | None
    longest: float
    done: asyncio.Future[AppStatus | None]
    due: float = 0.0
    pause: float = field(default=FIRST_PAUSE)
    is_closed: bool = False


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
        self._waits: set[Wait] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

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
        wait = Wait(handle, until, longest, loop.create_future())

        def poll_last() -> None:
            wait.is_closed, wait.due = True, 0.0
            self._changed.set()

        def close() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits
                loop.call_soon_threadsafe(poll_last)

        self._waits.add(wait)
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll(), name="torchx waits")
        try:
            # asyncio.wait_for would raise TimeoutError, which a scheduler may raise as well.
            with closing.calling(close):
                await asyncio.wait({wait.done}, timeout=timeout)
            if timeout is None or wait.done.done():
                return wait.done.result()
        finally:
            wait.done.cancel()
            self._waits.discard(wait)
            self._changed.set()
        status = await self._status(handle)
        if status is None or has_reached(status.state, until):
            return status
        raise WaitTimeoutError(handle, timeout, status)

    async def close(self) -> None:
        """Cancel all waits."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for wait in self._waits:
            wait.done.cancel()

    async def _poll(self) -> None:
        """Poll until there are no waits; an unexpected error ends all waits."""
        try:
            await self._poll_due()
        except Exception as e:
            for wait in self._waits:
                if not wait.done.done():
                    wait.done.set_exception(e)

    async def _poll_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waits:
            self._changed.clear()
            now = loop.time()
            due = [wait for wait in self._waits if wait.due <= now]
            if due:
                await self._poll_once(due)
                for wait in due:
                    wait.due = 0.0 if wait.is_closed else loop.time() + wait.pause
                    wait.pause = min(wait.pause * _GROWTH, wait.longest)
                continue
            pause = min(wait.due for wait in self._waits) - now
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)

    async def _poll_once(self, due: list[Wait]) -> None:
        """Query the apps of some waits, and end the waits that are over.

        A wait is over if its app has reached the state or does not exist, or if the query fails. If
        many apps are due, one request lists their states first.
        """
        states: dict[AppHandle, AppState] = {}
        if len({wait.handle for wait in due}) >= LIST_FROM:
            # A scheduler may fail to list its apps, or list only some of them. Apps that are not
            # listed are queried one by one.
            with contextlib.suppress(Exception):
                states = await self._states()
        by_handle: dict[AppHandle, list[Wait]] = {}
        for wait in due:
            listed = states.get(wait.handle)
            if listed is None or wait.is_closed or has_reached(listed, wait.until):
                by_handle.setdefault(wait.handle, []).append(wait)
        await asyncio.gather(*(self._resolve(handle, w) for handle, w in by_handle.items()))

    async def _resolve(self, handle: AppHandle, waits: list[Wait]) -> None:
        try:
            status = await self._status(handle)
        except Exception as e:
            for wait in waits:
                if not wait.done.done():
                    wait.done.set_exception(e)
            return
        for wait in waits:
            over = status is None or has_reached(status.state, wait.until)
            if over and not wait.done.done():
                wait.done.set_result(status)
            elif wait.is_closed and not wait.done.done():
                wait.done.set_exception(ClosedError())
