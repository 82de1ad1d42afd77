"""Functions that the jobs of ``test_slurm_functions`` import."""

from __future__ import annotations

import os
import signal


def task_of(number: int) -> tuple[int, str, str]:
    """Return ``number``, and the ids of the array and the task in which this process runs."""
    return number, os.environ["SLURM_ARRAY_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"]


def fail_for_odd(number: int) -> int:
    """Return the number if it is even.

    Raises:
        ValueError: The number is odd.
    """
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def kill_itself() -> None:
    """End the program without a result."""
    os.kill(os.getpid(), signal.SIGKILL)
