"""Apps for the tests on the double of LSF."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppDef, AppState, Resource, Role, is_terminal
from torchx_specs.schedulers import DescribeAppResponse


def app(*args: str, count: int = 1, memory: int = 50, gpus: int = 0, name: str = "app") -> AppDef:
    role = Role(
        "main",
        image="",
        entrypoint="bash",
        args=["-c", *args],
        num_replicas=count,
        resource=Resource(cpu=1, gpu=gpus, memMB=memory),
    )
    return AppDef(name, [role])


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait(scheduler: LsfScheduler, app_id: str, *states: AppState) -> DescribeAppResponse:
    """Return the description of an app once it is in one of the states, by default a final one."""
    deadline = time.monotonic() + 120
    while True:
        found = scheduler.describe(app_id)
        assert found is not None
        if found.state in states or (not states and is_terminal(found.state)):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def jobs(folder: Path) -> list[dict[str, object]]:
    """Return the states of the double's jobs, in the order of their ids."""
    paths = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def unfinished(folder: Path) -> list[object]:
    """Return the names of the double's jobs that have not ended."""
    return [job["name"] for job in jobs(folder) if job["stat"] not in ("DONE", "EXIT")]
