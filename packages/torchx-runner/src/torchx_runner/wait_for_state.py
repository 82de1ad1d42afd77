"""Waits until an app has reached a state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import TorchXError
from torchx_specs.model.status import AppState, AppStatus, is_terminal
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.older import features_of

if TYPE_CHECKING:
    from torchx_specs.model.handles import AppHandle
    from torchx_specs.schedulers import Scheduler

#: The first pause between two polls of an app, in seconds.
FIRST_PAUSE = 0.05
_GROWTH = 1.5


class WaitTimeoutError(TorchXError, TimeoutError):
    """The app did not reach the state in time; ``status`` is its last known status."""

    exit_code = 1

    def __init__(self, app_handle: AppHandle, timeout: float, status: AppStatus) -> None:
        super().__init__(
            f"{app_handle} is {status.state.name} after {timeout:g} s; it continues"
            " (torchx cancel ends it)"
        )
        self.status = status

    def __str__(self) -> str:  # OSError.__str__ shows errno and strerror, which are not set
        return str(self.args[0])


def pause_between_polls(
    scheduler: Scheduler[Any],
    app_id: str,
    interval: float,
    *,
    sleep: Callable[[float], object] | None = None,
) -> Callable[[float | None], object]:
    """Return a function that waits between two polls; its argument limits the wait, in seconds.

    If the scheduler can watch an app (``Scheduler.wait``), the function waits until the scheduler
    reports a change, for at most ``interval`` seconds. Otherwise the pauses grow from
    :data:`FIRST_PAUSE` to ``interval``: the end of a short job is seen quickly, and a long job
    causes few polls. The function raises a ``ClosedError`` once the scheduler is closed.

    Args:
        scheduler: The scheduler that runs the app.
        app_id: The app.
        interval: The longest pause, in seconds.
        sleep: Function that waits for a number of seconds; None ends the wait at the closing.
    """
    closing = closing_of(scheduler)
    sleep = sleep or closing.sleep
    sleep_seconds = min(FIRST_PAUSE, interval)

    can_watch = features_of(scheduler).watch

    def pause(remaining: float | None) -> None:
        nonlocal sleep_seconds
        closing.sleep(0)
        longest = interval if remaining is None else min(interval, remaining)
        if can_watch and scheduler.wait(app_id, longest):
            return
        sleep(sleep_seconds if remaining is None else min(sleep_seconds, remaining))
        sleep_seconds = min(sleep_seconds * _GROWTH, interval)

    return pause


def wait_for(
    app_handle: AppHandle,
    poll: Callable[[], AppStatus | None],
    pause: Callable[[float | None], object],
    timeout: float | None = None,
    until: AppState | None = None,
    observe: Callable[[AppStatus], object] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AppStatus | None:
    """Poll an app until it has ended or reached the state ``until``.

    Args:
        app_handle: The app, for messages.
        poll: Returns the app's status, or None if the app does not exist.
        pause: Sleeps between two polls; called with the remaining time in seconds, or None without
            a timeout.
        timeout: How long to wait, in seconds; None means without a limit.
        until: A state that is not terminal: return at this state or a later one. None waits for the
            end.
        observe: Called with the status after each poll.
        clock: Function that returns a time in seconds.

    Returns:
        The status, or None if the app does not exist.

    Raises:
        WaitTimeoutError: The timeout expired.
    """
    deadline = None if timeout is None else clock() + timeout
    warned = False
    while True:
        status = poll()
        if status is not None and observe is not None:
            observe(status)
        if status is None or has_reached(status.state, until):
            return status
        if status.state == AppState.UNKNOWN and not warned:
            logging.getLogger(__name__).warning(
                "%s is in state UNKNOWN (%s); waiting until its scheduler reports a state",
                app_handle,
                status.message or "no reason given",
            )
            warned = True
        remaining = None if deadline is None else deadline - clock()
        if remaining is not None and remaining <= 0:
            raise WaitTimeoutError(app_handle, timeout or 0, status)
        pause(remaining)


def has_reached(state: AppState, until: AppState | None) -> bool:
    """Return True if an app in this state has ended, or is at or past ``until``; UNKNOWN is not."""
    if is_terminal(state):
        return True
    return until is not None and state != AppState.UNKNOWN and state >= until
