"""Python functions as jobs of a real Slurm: one array, tracebacks, clients that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import slurm as service
from slurm_functions import fail_for_odd, kill_itself, task_of
from slurm_jobs import Cluster

from torchx_functions import Executor, JobCancelledError, JobGroup, NoResultError, RemoteTraceback
from torchx_specs.errors import ConfigError

# A client that announces the handle of its jobs and waits to be killed.
CLIENT = """
import sys, time
from torchx_functions import Executor

def square(number):
    import os
    return number * number, os.environ["SLURM_JOB_ID"]

executor = Executor(folder=sys.argv[1], scheduler="slurm", mem_mb=10)
group = executor.map(square, range(20))
print(group.handle, flush=True)
time.sleep(3600)
"""


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


def test_an_exception_comes_back_with_its_traceback(executor: Executor) -> None:
    jobs = executor.map(fail_for_odd, range(4))
    assert jobs[2].result(timeout=300) == 2
    error = jobs[3].exception(timeout=300)
    assert isinstance(error, ValueError)
    assert str(error) == "3 is odd"
    assert isinstance(error.__cause__, RemoteTraceback)
    assert 'raise ValueError(f"{number} is odd")' in str(error.__cause__)


def test_a_later_client_reads_the_results_of_a_killed_one(
    executor: Executor, tmp_path: Path
) -> None:
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    client = subprocess.Popen(
        [sys.executable, str(script), executor.folder], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    handle = client.stdout.readline().strip()
    client.kill()
    client.communicate()
    group = JobGroup.from_handle(handle)
    found = list(group.results(timeout=500))
    assert [value for value, _ in found] == [number**2 for number in range(20)]
    assert len({job_id for _, job_id in found}) == 20


def test_a_killed_job_has_no_result(executor: Executor) -> None:
    job = executor.submit(kill_itself)
    with pytest.raises(NoResultError, match=f"torchx log {job.handle}"):
        job.result(timeout=300)


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
