"""Runs the conformance suite of schedulers on ``local_docker``, with real engines."""

from __future__ import annotations

from typing import Any

import pytest
from docker_engine import BUSYBOX

from torchx_sched_docker.scheduler import DockerScheduler
from torchx_testing.scheduler_suite import SchedulerConformance


class TestDocker(SchedulerConformance):
    """Runs the suite for ``local_docker`` with the image of busybox."""

    scheduler_name = "local_docker"
    image = BUSYBOX
    time_limit_cfg = {"time": "2s"}

    @pytest.fixture
    def scheduler(self, scheduler: DockerScheduler) -> DockerScheduler:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return {"pull": "never"}
