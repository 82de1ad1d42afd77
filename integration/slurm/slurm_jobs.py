"""Clusters and apps for the tests of Slurm, and functions that wait for jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import slurm as service
import waiting

from patience import wait_for as wait_until
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse

# The values of the fixture ``cluster``: this machine's Slurm without accounting, this machine's
# Slurm with accounting, and the Slurm of Debian releases (trixie; sid works, too).
PLAIN = "plain"
ACCOUNTING = "accounting"
RELEASES = tuple(os.environ.get("TORCHX_TEST_SLURM_RELEASES", "trixie").split())

#: Runs a test on a cluster without accounting, and on a cluster with accounting.
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
        folder: Directory of the cluster's files.
        variables: The environment variables with which clients find the cluster.
        accounting: Whether the cluster has accounting.
    """

    folder: Path
    variables: dict[str, str]
    accounting: bool


@dataclass(frozen=True)
class TimedJobs:
    """Jobs with a time limit, on a cluster of their own.

    Attributes:
        variables: The environment variables with which clients find the cluster.
        signalled: Id of a job that gets a signal before its time limit, and then ends.
        killed: Id of a job that Slurm kills at its time limit.
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
) -> DescribeAppResponse:
    """Wait like :func:`waiting.wait_for`; an error contains the output of the job's script."""

    def script_output() -> str:
        path = Path(f"slurm-{app_id}.out")
        return path.read_text() if path.exists() else ""

    return waiting.wait_for(scheduler, app_id, *states, until=until, details=script_output)


def wait_until_forgotten(cluster: Cluster, app_id: str) -> None:
    """Wait until the controller has forgotten a job (MinJobAge)."""
    query = ["squeue", "-h", "-t", "all", "-j", app_id]
    wait_until(lambda: not service.succeeds(query, cluster.variables, app_id), pause=0.2)
