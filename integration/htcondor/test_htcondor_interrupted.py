"""``torchx run`` is interrupted while a real HTCondor accepts its job."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, check_cancelled_by_interruption


@pytest.fixture
def environment(
    environment: dict[str, str], running: tuple[Path, dict[str, str]]
) -> dict[str, str]:
    return {**environment, **running[1]}


def queued() -> list[str]:
    """Return the names of the jobs in the queue."""
    argv = ["condor_q", "-af", "JobBatchName"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.gate
@pytest.mark.parametrize("number", dict(SIGNALS))
def test_job_of_an_interrupted_condor_submit_is_removed(
    pool: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    check_cancelled_by_interruption(
        "htcondor", "condor_submit", number, environment, tmp_path, torchx, queued
    )
