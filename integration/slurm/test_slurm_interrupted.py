"""``torchx run`` is interrupted while a real Slurm accepts its job."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, interrupted_run
from slurm_jobs import Cluster

from patience import wait_for

Torchx = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def environment(environment: dict[str, str], cluster: Cluster) -> dict[str, str]:
    return {**environment, **cluster.variables}


def state(torchx: Torchx, handle: str) -> str:
    return str(json.loads(torchx("status", "--json", handle).stdout)["state"])


@pytest.mark.gate
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_job_of_an_interrupted_sbatch_is_found_by_the_printed_handle(
    environment: dict[str, str],
    torchx: Torchx,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    run = ["run", "-s", "slurm", "--name", "held", "utils.sh", "sleep", "86400"]
    found, handle = interrupted_run(
        run, "sbatch", "accepted", number, environment, tmp_path, torchx
    )
    assert found == code
    wait_for(lambda: state(torchx, handle) == "RUNNING")
    [listed] = [
        one
        for one in json.loads(torchx("list", "-s", "slurm", "--json").stdout)
        if one["name"] == "held" and one["state"] == "RUNNING"
    ]
    assert listed["handle"] != handle  # it has the job's number
    assert torchx("cancel", handle).returncode == 0
    wait_for(lambda: state(torchx, handle) == "CANCELLED")
    assert state(torchx, listed["handle"]) == "CANCELLED"


@pytest.mark.gate
def test_submission_that_did_not_reach_slurm_ends_after_a_grace_period(
    environment: dict[str, str], torchx: Torchx, tmp_path: Path
) -> None:
    run = ["run", "-s", "slurm", "utils.sh", "sleep", "86400"]
    code, handle = interrupted_run(
        run, "sbatch", "before", signal.SIGINT, environment, tmp_path, torchx
    )
    assert code == 130
    assert state(torchx, handle) == "PENDING"
    assert "has not ended; try again" in torchx("cancel", handle).stderr
    [entry] = Path(environment["HOME"], ".torchx", "slurm", "apps").iterdir()
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "submitted": 1.0}))
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert status["state"] == "CANCELLED"
    assert status["msg"] == "the submission was interrupted"
    assert torchx("delete", handle).returncode == 0
    assert torchx("status", handle).returncode == 1
