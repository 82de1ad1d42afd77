"""``torchx run`` is interrupted while the double of LSF accepts its job."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, interrupted_run
from lsf_jobs import unfinished

from patience import wait_for


@pytest.fixture
def environment(environment: dict[str, str], lsf: Path) -> dict[str, str]:
    return {**environment, "LSF_DOUBLE_DIR": str(lsf), "PATH": os.environ["PATH"]}


@pytest.mark.gate
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_job_of_an_interrupted_bsub_is_killed(
    lsf: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    run = ["run", "-s", "lsf", "utils.sh", "sleep", "86400"]
    found, handle = interrupted_run(run, "bsub", "accepted", number, environment, tmp_path, torchx)
    assert found == code
    wait_for(lambda: not unfinished(lsf))
    assert json.loads(torchx("status", "--json", handle).stdout)["state"] == "CANCELLED"
