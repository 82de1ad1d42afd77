"""Wait for the states of the apps that a service runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import patience
from torchx_specs import AppState, is_terminal
from torchx_specs.schedulers import DescribeAppResponse, Scheduler


def described(
    scheduler: Scheduler[Any],
    app_id: str,
    test: Callable[[DescribeAppResponse], Any] = lambda found: is_terminal(found.state),
    details: Callable[[], str] = str,
) -> DescribeAppResponse:
    """Poll an app until its description passes a test, and return the description.

    Args:
        scheduler: The scheduler of the app.
        app_id: The app's id.
        test: The test; the default passes when the app has ended.
        details: Called after a timeout; returns more text for the error.

    Raises:
        AssertionError: The app does not exist, or did not pass the test in time.
    """
    found: list[DescribeAppResponse] = []

    def passed() -> bool:
        description = scheduler.describe(app_id)
        assert description is not None
        found[:] = [description]
        return bool(test(description))

    patience.wait_for(passed, lambda: f"still {found}; {details()}", pause=0.05)
    return found[0]


def wait_for(
    scheduler: Scheduler[Any],
    app_id: str,
    *states: AppState,
    until: Callable[[DescribeAppResponse], bool] = lambda found: True,
    details: Callable[[], str] = str,
) -> DescribeAppResponse:
    """Wait until an app is in one of the states, and return its description.

    Args:
        scheduler: The scheduler of the app.
        app_id: The app's id.
        states: The states to wait for; without states, wait until the app has ended.
        until: A condition that the description must meet as well.
        details: Called after a timeout; returns more text for the error.

    Raises:
        AssertionError: The app does not exist, or was not in one of the states in time.
    """

    def is_right(found: DescribeAppResponse) -> bool:
        right = found.state in states if states else is_terminal(found.state)
        return right and until(found)

    return described(scheduler, app_id, is_right, details)
