"""Runs the conformance suite of groups (the apps that one sweep submits) on ``local_cwd``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_testing.group_suite import GroupConformance


class TestLocalGroups(GroupConformance):
    scheduler_name = "local_cwd"

    @pytest.fixture
    def scheduler(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[LocalScheduler]:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx home"))
        scheduler = create_scheduler("conformance")
        yield scheduler
        scheduler.close()
