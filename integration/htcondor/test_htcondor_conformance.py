"""The conformance suites on a real HTCondor pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_sched_htcondor.scheduler import HTCondorScheduler, create_scheduler
from torchx_testing.group_suite import GroupConformance
from torchx_testing.scheduler_suite import SchedulerConformance


class TestHTCondor(SchedulerConformance):
    scheduler_name = "htcondor"
    pending_cfg = {"requirements": "False"}
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, pool: Path) -> HTCondorScheduler:
        return create_scheduler("conformance")


class TestHTCondorGroups(GroupConformance):
    scheduler_name = "htcondor"
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, pool: Path) -> HTCondorScheduler:
        return create_scheduler("conformance")
