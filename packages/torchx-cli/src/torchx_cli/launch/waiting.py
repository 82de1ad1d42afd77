"""Waiting for a state."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_specs.model.status import AppState, is_terminal

_ORDER = (AppState.UNSUBMITTED, AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING)


def intervals(first: float = 0.02, longest: float = 2.0) -> Iterator[float]:
    """Yields times to sleep between two looks, in seconds, each half as long again as the last."""
    interval = first
    while True:
        yield interval
        interval = min(interval * 1.5, longest)


def has_reached(state: AppState, goal: AppState | None) -> bool:
    """Returns True if an app in ``state`` is where it should be.

    Args:
        state: the state it is in
        goal: a terminal state is reached by that state alone, any other by those after it too,
            as far as the app did not fail; None means that it succeeded
    """
    goal = AppState.SUCCEEDED if goal is None else goal
    if state in (goal, AppState.SUCCEEDED):
        return state == goal or not is_terminal(goal)
    return state in _ORDER and goal in _ORDER and state > goal
