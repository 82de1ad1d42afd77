"""Apps with the option ``requeue`` on a real Grid Engine."""

from __future__ import annotations

import subprocess

from resilience import AttemptCases

from torchx_kit.batch.entries import Index


class TestAttempts(AttemptCases):
    limit = "40s"
    again = "node-failure"  # Grid Engine kills the job without another signal before

    def start_again(self, app_id: str) -> None:
        entry = Index("sge").get(app_id)
        assert entry is not None
        job = f"{entry.roles[0].jobs[0]}.2"
        subprocess.run(["qmod", "-rj", job], check=True, capture_output=True)
