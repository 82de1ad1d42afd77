"""Sweeps on Slurm and this machine: each element starts once, where a place is free first."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from first_free import create, run_with_kills, schedulers_of, written
from slurm_jobs import app, wait_for

from torchx_runner import get_runner
from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppState
from torchx_sweep import ElementState, api, results, wait

pytestmark = pytest.mark.usefixtures("cluster", "work")


@pytest.fixture
def full(scheduler: SlurmScheduler) -> str:
    """Fill the cluster with a job, and return the job's id."""
    cfg = {"exclusive": True, "replicas_per_node": 1}
    job_id = scheduler.submit(app("sleep 900", num_replicas=4), cfg)
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


def test_elements_of_a_full_cluster_run_here(full: str, tmp_path: Path) -> None:
    handle = create("slurm", tmp_path / "out", 12)
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 12}
    assert written(tmp_path / "out") == Counter(range(12))
    assert schedulers_of(handle) == {"local_cwd"}
    withdrawn = [app_handle for element in results(handle) for app_handle in element.earlier]
    assert withdrawn
    with get_runner() as runner:
        for app_handle in withdrawn:
            status = runner.status(app_handle)
            assert status is not None
            assert status.state == AppState.CANCELLED


def test_elements_start_once_although_drivers_are_killed(
    scheduler: SlurmScheduler, full: str, tmp_path: Path
) -> None:
    # From the fourth kill on, elements start on both schedulers.
    handle = run_with_kills(
        *("slurm", tmp_path / "out", 60, 8),
        lambda number: scheduler.cancel(full) if number == 3 else None,
        max_parallel=12,
    )
    assert schedulers_of(handle) == {"local_cwd", "slurm"}


def test_a_cancelled_sweep_leaves_nothing_in_either_queue(full: str, tmp_path: Path) -> None:
    handle = create("slurm", tmp_path / "out", 40, max_parallel=20)
    api.cancel(handle)
    counts = wait(handle, timeout=300).counts
    assert set(counts) <= {ElementState.CANCELLED, ElementState.SUCCEEDED}
    assert not [job for job in create_scheduler("test").list() if job.state == AppState.PENDING]
