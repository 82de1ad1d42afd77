"""The conformance suite of groups on a real Grid Engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_sched_sge.scheduler import SgeScheduler, create_scheduler
from torchx_testing.group_suite import GroupConformance


class TestSgeGroups(GroupConformance):
    scheduler_name = "sge"
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, cluster: Path) -> SgeScheduler:
        return create_scheduler("conformance")
