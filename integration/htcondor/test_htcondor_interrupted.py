"""``torchx run`` is interrupted while a real HTCondor accepts its job."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, interrupted_run

from patience import wait_for as wait_until


@pytest.fixture
def environment(
    environment: dict[str, str], running: tuple[Path, dict[str, str]]
) -> dict[str, str]:
    return {**environment, **running[1]}


def queued() -> str:
    """Return the names of the jobs in the queue."""
    argv = ["condor_q", "-af", "JobBatchName"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_job_of_an_interrupted_condor_submit_is_removed(
    pool: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    run = ["run", "-s", "htcondor", "utils.sh", "sleep", "86400"]
    found, handle = interrupted_run(
        run, "condor_submit", "accepted", number, environment, tmp_path, torchx
    )
    assert found == code
    name = handle.rpartition("/")[2]
    wait_until(lambda: name not in queued())
    assert json.loads(torchx("status", "--json", handle).stdout)["state"] == "CANCELLED"
