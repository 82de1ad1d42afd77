"""Run `torchx list` over eight schedulers, one of which never answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 2.0
PLUGIN = """
import time
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.schedulers import ListAppResponse, Scheduler
from torchx_specs import AppState


class Some(Scheduler):
    def _submit_dryrun(self, app, cfg):
        raise NotImplementedError

    def schedule(self, info):
        raise NotImplementedError

    def describe(self, app_id):
        return None

    def list(self, cfg=None):
        if self.backend == "some7":
            time.sleep(3600)
        return [ListAppResponse(app_id=f"{self.backend}-app", state=AppState.RUNNING)]

    def _cancel_existing(self, app_id):
        raise NotImplementedError


def create(name):
    return lambda session_name, **_: Some(name, session_name)


@hookimpl
def torchx_schedulers():
    for number in range(8):
        yield SchedulerPlugin(f"some{number}", create(f"some{number}"))
"""

folder = Path("plugins").resolve()
about = folder / "eight_schedulers-1.0.dist-info"
about.mkdir(parents=True)
(folder / "eight_schedulers.py").write_text(PLUGIN)
(about / "METADATA").write_text("Metadata-Version: 2.1\nName: eight-schedulers\nVersion: 1.0\n")
(about / "entry_points.txt").write_text("[torchx]\neight = eight_schedulers\n")
torchx = str(Path(sys.executable).with_name("torchx"))
begun = time.perf_counter()
done = subprocess.run(
    [torchx, "list", "--timeout", f"{LIMIT:g}s"],
    env={**os.environ, "PYTHONPATH": str(folder)},
    capture_output=True,
    text=True,
    check=True,
)
seconds = time.perf_counter() - begun
shown = [line for line in done.stdout.splitlines() if "-app" in line]
assert len(shown) == 7, done.stdout + done.stderr
assert "some7: no answer within 2 s" in done.stderr, done.stderr
print({"seconds": seconds - LIMIT, "answers": len(shown)})
