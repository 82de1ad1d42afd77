"""Functions that the jobs of ``test_slurm_functions`` import."""

from __future__ import annotations

import os
import time
from pathlib import Path


def task_of(number: int) -> tuple[int, str, str]:
    """Return ``number``, and the ids of the array and the task in which this process runs."""
    return number, os.environ["SLURM_ARRAY_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"]


def attempt_of(folder: str) -> str:
    """Return the number of restarts of the job; without a restart, wait to be ended."""
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    if restarts == "0":
        Path(folder, "function").touch()
        time.sleep(600)
    return restarts


class Counter:
    """Counts attempts, and waits to be stopped in the first one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, folder: str) -> tuple[int, str]:
        if self.count == 0:
            self.count = 1
            Path(folder, "counting").touch()
            time.sleep(86400)
        return self.count, os.environ.get("SLURM_RESTART_COUNT", "0")

    def checkpoint(self, folder: str) -> Counter:
        return self
