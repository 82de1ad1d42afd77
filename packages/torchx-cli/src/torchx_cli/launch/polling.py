"""Yields polling intervals, and checks whether an app has reached a requested state."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_specs.model.status import AppState, is_terminal

_ORDER = (AppState.UNSUBMITTED, AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING)


def intervals(first: float = 0.02, longest: float = 2.0) -> Iterator[float]:
    """Yield pauses between two polls, in seconds, which grow from ``first`` to ``longest``."""
    interval = first
    while True:
        yield interval
        interval = min(interval * 1.5, longest)


def has_reached(state: AppState, goal: AppState | None) -> bool:
    """Return True if an app in ``state`` has reached the state ``goal``.

    Args:
        state: The state of the app.
        goal: The requested state; None means SUCCEEDED. A terminal state must be reached exactly.
            Any other state is also reached if the app is in a later state, but not if the app
            failed or was cancelled.
    """
    goal = AppState.SUCCEEDED if goal is None else goal
    if state in (goal, AppState.SUCCEEDED):
        return state == goal or not is_terminal(goal)
    return state in _ORDER and goal in _ORDER and state > goal
