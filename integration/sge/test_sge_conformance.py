"""The conformance suite on a real Grid Engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_sched_sge.scheduler import SgeScheduler, create_scheduler
from torchx_testing.scheduler_suite import SchedulerConformance


class TestSge(SchedulerConformance):
    scheduler_name = "sge"
    pending_cfg = {"extra": ["-a", "203501010000"]}
    time_limit_cfg = {"time": "2"}
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, cluster: Path) -> SgeScheduler:
        return create_scheduler("conformance")
