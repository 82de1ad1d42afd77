"""Wait for the states of the apps that a service runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torchx_specs import AppState, is_terminal
from torchx_specs.schedulers import DescribeAppResponse, Scheduler


def wait_for(
    scheduler: Scheduler[Any],
    app_id: str,
    *states: AppState,
    until: Callable[[DescribeAppResponse], bool] = lambda found: True,
    seconds: float = 120,
    details: Callable[[], str] = str,
) -> DescribeAppResponse:
    """Wait until an app is in one of the states, and return its description.

    Args:
        scheduler: The scheduler of the app.
        app_id: The app's id.
        states: The states to wait for; without states, wait until the app has ended.
        until: A condition that the description must meet as well.
        seconds: How long to wait at most.
        details: Called after a timeout; returns more text for the error.

    Raises:
        AssertionError: The app does not exist, or was not in one of the states in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = scheduler.describe(app_id)
        assert found is not None
        right = found.state in states if states else is_terminal(found.state)
        if right and until(found):
            return found
        assert time.monotonic() < deadline, f"still {found}; {details()}"
        time.sleep(0.1)
