"""The conformance suite for ``local_docker`` on a real engine."""

from __future__ import annotations

from typing import Any

import pytest
from docker_engine import BUSYBOX

from torchx_sched_docker.scheduler import DockerScheduler
from torchx_testing.scheduler_suite import SchedulerConformance


class TestDocker(SchedulerConformance):
    """``local_docker`` with busybox."""

    scheduler_name = "local_docker"
    image = BUSYBOX
    unsupported = {
        "cancel_pending": "an engine starts containers at once or refuses them",
        "not_utf8": "the engine's API is JSON; such values are refused before submission",
    }

    @pytest.fixture
    def scheduler(self, scheduler: DockerScheduler) -> DockerScheduler:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return {"pull": "never"}
