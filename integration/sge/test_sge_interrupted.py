"""``torchx run`` is interrupted while a real Grid Engine accepts its job."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, interrupted_run

from patience import wait_for
from torchx_sched_sge.system import Sge


@pytest.fixture
def environment(
    environment: dict[str, str], running: tuple[Path, dict[str, str]]
) -> dict[str, str]:
    return {**environment, **running[1]}


@pytest.mark.gate
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_job_of_an_interrupted_qsub_is_deleted(
    cluster: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    run = ["run", "-s", "sge", "utils.sh", "sleep", "86400"]
    found, handle = interrupted_run(run, "qsub", "accepted", number, environment, tmp_path, torchx)
    assert found == code
    name = handle.rpartition("/")[2]
    wait_for(lambda: not any(name in job.name for job in Sge().listing(None)[0].values()))
    assert json.loads(torchx("status", "--json", handle).stdout)["state"] == "CANCELLED"
