"""Helpers of the tests of this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from patience import wait_for
from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs import AppDef, Role
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers import DescribeAppResponse


def sh(script: str, name: str = "main", **fields: Any) -> Role:
    """Return a role that runs a shell script."""
    return Role(name, image="", entrypoint="sh", args=["-c", script], **fields)


def submit(scheduler: LocalScheduler, *roles: Role, **cfg: Any) -> str:
    info = scheduler.submit_dryrun(AppDef("app", list(roles)), cfg)
    return scheduler.schedule(info)


def finish(scheduler: LocalScheduler, app_id: str) -> DescribeAppResponse:
    """Wait until an app has ended, and return its description."""

    def ended() -> DescribeAppResponse | None:
        scheduler.wait(app_id, 1)
        found = scheduler.describe(app_id)
        assert found is not None
        return found if is_terminal(found.state) else None

    found = wait_for(ended, lambda: scheduler.describe(app_id))
    assert found is not None
    return found


def run(scheduler: LocalScheduler, *roles: Role, **cfg: Any) -> DescribeAppResponse:
    return finish(scheduler, submit(scheduler, *roles, **cfg))


def lines(scheduler: LocalScheduler, app_id: str, role: str = "main", k: int = 0, **kwargs: Any):
    return list(scheduler.log_iter(app_id, role, k, **kwargs))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the process ended before open() or read()
        return False
    return state not in "ZX"


def read_pids(path: Path, count: int = 1) -> list[int]:
    """Wait until a file has at least ``count`` pids, one on each line; return the pids."""

    def pids() -> list[int]:
        text = path.read_text() if path.exists() else ""
        return [int(line) for line in text.splitlines() if text.endswith("\n")]

    return wait_for(lambda: pids() if len(pids()) >= count else None)


def python(code: str, *args: object) -> list[str]:
    """Return the command that runs Python code in another process with the same ``sys.path``."""
    prefix = f"import sys; sys.path[:] = {sys.path!r}\n"
    return [sys.executable, "-c", prefix + code, *map(str, args)]
