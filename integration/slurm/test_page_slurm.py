"""Test of the example session in the documentation of the scheduler ``slurm``, on Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from slurm_jobs import Cluster

from patience import wait_for


def test_the_session_of_the_page(
    cluster: Cluster,
    page_session: Callable[[str], None],
) -> None:
    # `torchx list` shows the jobs of earlier tests, too
    wait_for(lambda: not subprocess.check_output(["squeue", "-h", "-t", "all"]), pause=0.2)
    page_session("slurm")
