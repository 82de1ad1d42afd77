"""Functions that the jobs of ``test_slurm_functions`` import."""

from __future__ import annotations

import os


def task_of(number: int) -> tuple[int, str, str]:
    """Return ``number``, and the ids of the array and the task in which this process runs."""
    return number, os.environ["SLURM_ARRAY_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"]
