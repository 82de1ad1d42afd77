"""Apps for the tests of Slurm, and functions that wait for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import slurm as service

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, AppState, Resource, Role, is_terminal
from torchx_specs.schedulers import DescribeAppResponse

# The clusters, as parameters of the fixture ``cluster``: this machine's Slurm without and with
# accounting, and the Slurm of Debian releases (trixie; sid works, too).
PLAIN = "plain"
ACCOUNTING = "accounting"
RELEASES = tuple(os.environ.get("TORCHX_TEST_SLURM_RELEASES", "trixie").split())

#: Runs a test without and with accounting.
with_and_without_accounting = pytest.mark.parametrize("cluster", [PLAIN, ACCOUNTING], indirect=True)
#: Runs a test on this machine's Slurm and on each release's.
every_release = pytest.mark.parametrize("cluster", [PLAIN, *RELEASES], indirect=True)
#: Runs a test on each cluster.
every_cluster = pytest.mark.parametrize("cluster", [PLAIN, ACCOUNTING, *RELEASES], indirect=True)

TINY = Resource(cpu=1, gpu=0, memMB=100)


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        folder: Its directory.
        variables: The variables with which clients find it.
        accounting: Whether it has accounting.
    """

    folder: Path
    variables: dict[str, str]
    accounting: bool


@dataclass(frozen=True)
class TimedJobs:
    """Jobs with a time limit.

    Attributes:
        variables: The variables with which clients find their cluster.
        signalled: A job that ends at the signal before its time limit.
        killed: A job that Slurm kills at its time limit.
    """

    variables: dict[str, str]
    signalled: str
    killed: str


def app(*args: str, name: str = "app", **attributes: object) -> AppDef:
    """Return an app of one role ``main``, which runs a line of bash with arguments."""
    role = Role("main", image="", entrypoint="bash", args=["-c", *args], resource=TINY)
    for key, value in attributes.items():
        setattr(role, key, value)
    return AppDef(name, [role])


def wait_for(
    scheduler: SlurmScheduler,
    app_id: str,
    *states: AppState,
    until: Callable[[DescribeAppResponse], bool] = lambda found: True,
    seconds: float = 120,
) -> DescribeAppResponse:
    """Wait until an app has ended or is in one of the states, and ``until`` returns True."""
    deadline = time.monotonic() + seconds
    while True:
        found = scheduler.describe(app_id)
        assert found is not None
        right = found.state in states if states else is_terminal(found.state)
        if right and until(found):
            return found
        if time.monotonic() > deadline:
            script_output = Path(f"slurm-{app_id}.out")
            output = script_output.read_text() if script_output.exists() else ""
            raise AssertionError(f"still {found}; {output}")
        time.sleep(0.2)


def wait_until_forgotten(cluster: Cluster, app_id: str) -> None:
    """Wait until the controller has forgotten a job (MinJobAge)."""
    deadline = time.monotonic() + 60
    while service.succeeds(["squeue", "-h", "-t", "all", "-j", app_id], cluster.variables, app_id):
        assert time.monotonic() < deadline
        time.sleep(0.2)
