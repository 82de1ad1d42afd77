"""Python functions as jobs of a real Slurm: one array, tracebacks, clients that are killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import slurm as service
from slurm_functions import Counter, task_of
from slurm_jobs import Cluster

from patience import PATIENCE, wait_for
from torchx_functions import Executor, JobCancelledError
from torchx_specs.errors import ConfigError


# A client that announces the handle of its jobs and waits to be killed.
@pytest.fixture
def executor(cluster: Cluster, work: Path, tmp_path: Path) -> Executor:
    """Return an executor whose folder all nodes share, because they run on this machine."""
    return Executor(folder=tmp_path / "shared", scheduler="slurm", mem_mb=10)


def test_map_is_one_array(executor: Executor) -> None:
    group = executor.map(task_of, range(100))
    found = list(group.results(timeout=500))
    assert [number for number, _, _ in found] == list(range(100))
    assert len({array for _, array, _ in found}) == 1
    assert [int(task) for _, _, task in found] == list(range(100))


def test_a_pending_job_is_cancelled(executor: Executor, cluster: Cluster) -> None:
    executor.update_parameters(slurm_extra=["begin=now+1hour"])
    job = executor.submit(task_of, 1)
    assert job.cancel()
    with pytest.raises(JobCancelledError):
        job.result(timeout=300)
    number = job.handle.rpartition("/")[2]
    queued = ["squeue", "-h", "-t", "PENDING", "-j", number]
    assert not service.succeeds(queued, cluster.variables, number)


def test_a_folder_that_cannot_be_created_is_refused(cluster: Cluster, work: Path) -> None:
    with pytest.raises(ConfigError, match="/proc/functions cannot be created"):
        Executor(folder="/proc/functions", scheduler="slurm")


@pytest.mark.gate
@pytest.mark.parametrize("signal", ["USR1", "TERM"])
def test_an_object_with_a_checkpoint_goes_on_after_a_requeue(
    executor: Executor, tmp_path: Path, signal: str
) -> None:
    executor.update_parameters(slurm_max_num_timeout=1)
    job = executor.submit(Counter(), str(tmp_path))
    wait_for((tmp_path / "counting").exists)
    # Slurm sends these signals to the steps: USR1 before the time limit, TERM before a preemption.
    subprocess.run(["scancel", "-s", signal, job.handle.rpartition("/")[2]], check=True)
    assert job.result(PATIENCE) == (1, "1")
    log = "".join(job.log())
    assert f"checkpoint made after SIG{signal}" in log
    assert "the function goes on from its checkpoint" in log
