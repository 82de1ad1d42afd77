"""What the tests of this folder share: apps, and waiting for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import slurm as service

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, AppState, Resource, Role, is_terminal
from torchx_specs.schedulers import DescribeAppResponse

TINY = Resource(cpu=1, gpu=0, memMB=100)


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs: its folder, and the variables with which clients find it."""

    folder: Path
    variables: dict[str, str]
    accounting: bool


@dataclass(frozen=True)
class TimedJobs:
    """Jobs with a time limit: one that ends when it is told of it, and one that is killed."""

    variables: dict[str, str]
    told: str
    killed: str


def app(*args: str, name: str = "app", **attributes: object) -> AppDef:
    """An app of one role ``main`` that runs a line of bash; further words are its arguments."""
    role = Role("main", image="", entrypoint="bash", args=["-c", *args], resource=TINY)
    for key, value in attributes.items():
        setattr(role, key, value)
    return AppDef(name, [role])


def wait_for(
    scheduler: SlurmScheduler,
    app_id: str,
    *states: AppState,
    until: Callable[[DescribeAppResponse], bool] = lambda found: True,
    seconds: float = 60,
) -> DescribeAppResponse:
    """Waits until an app has ended, or is in one of the states; and ``until`` holds."""
    deadline = time.monotonic() + seconds
    while True:
        found = scheduler.describe(app_id)
        assert found is not None
        right = found.state in states if states else is_terminal(found.state)
        if right and until(found):
            return found
        if time.monotonic() > deadline:
            script_output = Path(f"slurm-{app_id}.out")
            said = script_output.read_text() if script_output.exists() else ""
            raise AssertionError(f"still {found}; {said}")
        time.sleep(0.2)


def forget(cluster: Cluster, app_id: str) -> None:
    """Waits until the controller has forgotten a job (MinJobAge)."""
    deadline = time.monotonic() + 60
    while service._says(["squeue", "-h", "-t", "all", "-j", app_id], cluster.variables, app_id):
        assert time.monotonic() < deadline
        time.sleep(0.2)
