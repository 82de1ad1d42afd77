"""Commands inside the replicas of jobs, on a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from slurm_jobs import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inside_cases import InsideCases


class TestInsideJobs(InsideCases):
    run = ("-s", "slurm", "--workspace=")

    @pytest.fixture
    def environment(self, environment: dict[str, str], cluster: Cluster) -> dict[str, str]:
        return {**environment, **cluster.variables}
