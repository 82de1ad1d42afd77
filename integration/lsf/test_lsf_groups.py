"""The conformance suite of groups on LSF, or on its double."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_sched_lsf.scheduler import LsfScheduler, create_scheduler
from torchx_testing.group_suite import GroupConformance


class TestLsfGroups(GroupConformance):
    scheduler_name = "lsf"
    timeout = 300.0
    poll_interval = 0.1

    @pytest.fixture
    def scheduler(self, lsf: Path | None) -> LsfScheduler:
        return create_scheduler("conformance")
