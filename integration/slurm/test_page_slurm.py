"""Test of the example session in the documentation of the scheduler ``slurm``, on Slurm."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from slurm_jobs import Cluster


def test_the_session_of_the_page(
    cluster: Cluster,
    page_session: Callable[[str], None],
) -> None:
    deadline = time.monotonic() + 120  # `torchx list` shows the jobs of earlier tests, too
    while subprocess.check_output(["squeue", "-h", "-t", "all"]):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    page_session("slurm")
