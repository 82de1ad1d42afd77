"""Runs the conformance suite of groups (the apps of one sweep) on ``local_docker``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from docker_engine import BUSYBOX

from torchx_sched_docker.scheduler import DockerScheduler
from torchx_testing.group_suite import GroupConformance


class TestDockerGroups(GroupConformance):
    scheduler_name = "local_docker"
    image = BUSYBOX

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))

    @pytest.fixture
    def scheduler(self, scheduler: DockerScheduler) -> DockerScheduler:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return {"pull": "never"}
