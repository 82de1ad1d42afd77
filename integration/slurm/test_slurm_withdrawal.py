"""Tests of withdrawals of jobs on Slurm."""

from __future__ import annotations

import subprocess

import pytest
from slurm_jobs import app, wait_for

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppState

pytestmark = pytest.mark.usefixtures("cluster", "work")


@pytest.fixture
def full(scheduler: SlurmScheduler) -> str:
    """Fill the cluster with a job, and return the job's id."""
    cfg = {"exclusive": True, "replicas_per_node": 1}
    job_id = scheduler.submit(app("sleep 86400", num_replicas=4), cfg)
    wait_for(scheduler, job_id, AppState.RUNNING)
    return job_id


def test_a_job_is_withdrawn_unless_it_has_started(scheduler: SlurmScheduler, full: str) -> None:
    waiting = scheduler.submit(app("true"), {})
    assert scheduler.withdraw(waiting)
    assert scheduler.withdraw(waiting)
    wait_for(scheduler, waiting, AppState.CANCELLED)
    assert not scheduler.withdraw(full)
    found = scheduler.describe(full)
    assert found is not None
    assert found.state == AppState.RUNNING
    output = subprocess.run(
        ["scontrol", "show", "job", full], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert "Reason=None" in output  # the job is not held
    scheduler.cancel(full)
    wait_for(scheduler, full, AppState.CANCELLED)
    assert not scheduler.withdraw(full)
