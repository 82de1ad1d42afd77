"""Apps with the option ``requeue`` on the double of LSF."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
from resilience import AttemptCases, at_fault

from patience import wait_for as wait_until
from torchx_kit.batch.entries import Index
from torchx_sched_lsf.scheduler import LsfScheduler


class TestAttempts(AttemptCases):
    limit = "1"

    def start_again(self, app_id: str) -> None:
        entry = Index("lsf").get(app_id)
        assert entry is not None
        subprocess.run(["brequeue", entry.roles[0].jobs[1]], check=True, capture_output=True)

    def test_host_failure_starts_the_next_attempt(self, scheduler: LsfScheduler, lsf: Path) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        pids = [int(path.read_text()) for path in Path.cwd().glob("pid-*")]
        (lsf / "host-down").touch()
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
        Path("go").touch()
        (lsf / "host-down").unlink()
        self.check(scheduler, app_id, "node-failure")
