"""The conformance suite on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_jobs import Cluster, every_release

from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_testing.scheduler_suite import SchedulerConformance


@every_release
class TestSlurm(SchedulerConformance):
    scheduler_name = "slurm"
    pending_cfg = {"extra": ["hold"]}
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, cluster: Cluster, work: Path) -> SlurmScheduler:
        return create_scheduler("conformance")
