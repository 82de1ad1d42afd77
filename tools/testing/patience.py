"""Wait for conditions in tests: one helper with one patience (``pythonpath`` in pyproject.toml)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: How long a test waits for an event, in seconds. A time limit of a test is no measurement: it only
#: ends a test that hangs. ``TORCHX_TEST_PATIENCE`` multiplies it on a slow machine.
PATIENCE = 300.0 * float(os.environ.get("TORCHX_TEST_PATIENCE", "1"))


def wait_for(
    condition: Callable[[], T], details: Callable[[], object] = str, pause: float = 0.02
) -> T:
    """Call a condition until its value is true, and return the value.

    Args:
        condition: The condition.
        details: Called after a timeout; returns more text for the error.
        pause: How long to wait between two calls, in seconds.

    Raises:
        AssertionError: The condition was false for :data:`PATIENCE`.
    """
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {PATIENCE:.0f} s; {details()}")
        time.sleep(pause)
    return value
