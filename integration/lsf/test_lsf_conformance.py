"""The conformance suite, on the real LSF if ``bsub`` is on PATH, otherwise on the double."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from torchx_sched_lsf.scheduler import LsfScheduler, create_scheduler
from torchx_testing.scheduler_suite import SchedulerConformance


class _Suite(SchedulerConformance):
    scheduler_name = "lsf"
    pending_cfg = {"extra": ["-b", "2035:1:1:0:0"]}

    @pytest.fixture
    def scheduler(self, lsf: Path | None) -> LsfScheduler:
        return create_scheduler("conformance")


if shutil.which("bsub"):

    class TestRealLsf(_Suite):
        timeout = 600.0

else:

    class TestLsfDouble(_Suite):
        poll_interval = 0.1

    class TestOldLsfDouble(TestLsfDouble):
        """Tests on an old LSF, whose bjobs has neither ``-o`` nor ``-UF``."""

        @pytest.fixture(autouse=True)
        def _old(self, monkeypatch: pytest.MonkeyPatch) -> None:
            monkeypatch.setenv("LSF_DOUBLE_OLD", "1")

    def test_real_lsf() -> None:
        pytest.skip("bsub is not on PATH: the conformance suite ran on the double only")
