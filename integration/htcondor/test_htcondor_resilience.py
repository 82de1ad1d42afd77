"""Apps with the option ``requeue`` on a real HTCondor pool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from resilience import AttemptCases, loop, resilient_loop

import torchx_resilience
from torchx_kit.batch.entries import Index
from torchx_sched_htcondor.scheduler import HTCondorScheduler, create_scheduler
from torchx_specs.schedulers import Scheduler


class TestAttempts(AttemptCases):
    """The jobs run in a chroot, which shares only the folder of the test with this machine."""

    limit = "20s"

    @pytest.fixture
    def scheduler(self, pool: Path) -> HTCondorScheduler:
        folder = Path(torchx_resilience.__file__).parent
        shutil.copytree(folder, folder.name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(resilient_loop.__file__, "loop.py")
        return create_scheduler("test", patience=20.0)

    def submit(self, scheduler: Scheduler[Any], fault: str, retries: int = 0, **cfg: str) -> str:
        here = Path.cwd()
        app = loop(here, fault, retries, python="python3", program=str(here / "loop.py"))
        return scheduler.submit(app, {"resume_dir": "resume", **cfg})

    def start_again(self, app_id: str) -> None:
        entry = Index("htcondor").get(app_id)
        assert entry is not None
        job = f"{entry.roles[0].jobs[0]}.1"
        subprocess.run(["condor_vacate_job", job], check=True, capture_output=True)
