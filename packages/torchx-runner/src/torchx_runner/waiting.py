"""Waiting for an app to reach a state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import TorchXError
from torchx_specs.model.status import AppState, AppStatus

if TYPE_CHECKING:
    from torchx_specs.model.handles import AppHandle
    from torchx_specs.schedulers import Scheduler

#: The first pause between two looks at an app, in seconds.
FIRST_PAUSE = 0.05
_GROWTH = 1.5


class WaitTimeoutError(TorchXError, TimeoutError):
    """The app did not reach the state in time; ``status`` is the last that was seen."""

    exit_code = 1

    def __init__(self, app_handle: AppHandle, timeout: float, status: AppStatus) -> None:
        super().__init__(
            f"{app_handle} is {status.state.name} after {timeout:g} s; it goes on"
            " (torchx cancel ends it)"
        )
        self.status = status

    def __str__(self) -> str:  # OSError would print its own idea of the arguments
        return str(self.args[0])


def pause_between_polls(
    scheduler: Scheduler[Any], app_id: str, interval: float
) -> Callable[[float | None], object]:
    """Return a function that waits between two polls, at most as many seconds as it is given.

    A scheduler that watches its apps (``Scheduler.wait``) is not polled meanwhile. For others the
    pauses grow from :data:`FIRST_PAUSE` to ``interval``, so that the end of a short job is seen at
    once and a long job costs its scheduler little.

    Args:
        scheduler: The scheduler that runs the app.
        app_id: The app.
        interval: The longest pause, in seconds.
    """
    next_pause = min(FIRST_PAUSE, interval)

    def pause(left: float | None) -> None:
        nonlocal next_pause
        if scheduler.wait(app_id, interval if left is None else min(interval, left)):
            return
        time.sleep(next_pause if left is None else min(next_pause, left))
        next_pause = min(next_pause * _GROWTH, interval)

    return pause


def wait_for(
    app_handle: AppHandle,
    look: Callable[[], AppStatus | None],
    pause: Callable[[float | None], object],
    timeout: float | None = None,
    until: AppState | None = None,
) -> AppStatus | None:
    """Looks at an app until it has ended or come as far as ``until``.

    Args:
        app_handle: for messages
        look: returns the app's status
        pause: waits between two looks; it is given the time left, in seconds, None if there is no
            limit
        timeout: how long to wait, in seconds, for ever if None
        until: a state to return at, beside the terminal ones

    Returns:
        the status, or None if the app does not exist (any more)

    Raises:
        WaitTimeoutError: time is up
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    told_unknown = False
    while True:
        status = look()
        if status is None or status.is_terminal():
            return status
        if status.state == AppState.UNKNOWN:
            if not told_unknown:
                _warn_unknown(app_handle, status)
            told_unknown = True
        elif until is not None and status.state >= until:
            return status
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WaitTimeoutError(app_handle, timeout or 0, status)
        pause(left)


def _warn_unknown(app_handle: AppHandle, status: AppStatus) -> None:
    logging.getLogger(__name__).warning(
        "%s is in state UNKNOWN (%s); waiting until its scheduler can tell again",
        app_handle,
        status.msg or "no reason given",
    )
