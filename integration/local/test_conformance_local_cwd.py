"""Runs the conformance suite of schedulers on ``local_cwd``, with attached and detached apps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_testing.scheduler_suite import SchedulerConformance


class TestLocalCwd(SchedulerConformance):
    scheduler_name = "local_cwd"
    python = sys.executable
    time_limit_cfg = {"time": "1s"}

    @pytest.fixture
    def scheduler(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[LocalScheduler]:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx home"))
        scheduler = create_scheduler("conformance")
        yield scheduler
        scheduler.close()


class TestLocalCwdDetached(TestLocalCwd):
    @pytest.fixture
    def cfg(self) -> dict[str, object]:
        return {"detach": True}
