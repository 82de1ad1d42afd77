"""Tests of the states at which a wait ends."""

from __future__ import annotations

import pytest

from torchx_cli.commands.apps.wait import has_reached
from torchx_specs import AppState


@pytest.mark.parametrize(
    ("state", "goal", "reached"),
    [
        ("SUCCEEDED", None, True),
        ("FAILED", None, False),
        ("CANCELLED", None, False),
        ("RUNNING", None, False),
        ("RUNNING", "RUNNING", True),
        ("RUNNING", "PENDING", True),
        ("SUCCEEDED", "RUNNING", True),
        ("FAILED", "RUNNING", False),
        ("PENDING", "RUNNING", False),
        ("UNKNOWN", "PENDING", False),
        ("FAILED", "FAILED", True),
        ("SUCCEEDED", "FAILED", False),
        ("CANCELLED", "CANCELLED", True),
    ],
)
def test_has_reached(state: str, goal: str | None, reached: bool) -> None:
    assert has_reached(AppState[state], None if goal is None else AppState[goal]) is reached
