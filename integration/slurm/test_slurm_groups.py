"""The conformance suite of groups on a real Slurm, where a group is an array."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_jobs import Cluster, every_release

from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_testing.group_suite import GroupConformance


@every_release
class TestSlurmGroups(GroupConformance):
    scheduler_name = "slurm"
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, cluster: Cluster, work: Path) -> SlurmScheduler:
        return create_scheduler("conformance")
