"""``torchx run`` is interrupted while the double of LSF accepts its job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, check_cancelled_by_interruption
from lsf_jobs import unfinished


@pytest.fixture
def environment(environment: dict[str, str], lsf: Path) -> dict[str, str]:
    return {**environment, "LSF_DOUBLE_DIR": str(lsf), "PATH": os.environ["PATH"]}


@pytest.mark.gate
@pytest.mark.parametrize("number", dict(SIGNALS))
def test_job_of_an_interrupted_bsub_is_killed(
    lsf: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    check_cancelled_by_interruption(
        "lsf", "bsub", number, environment, tmp_path, torchx, lambda: unfinished(lsf)
    )
