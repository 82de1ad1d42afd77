"""``torchx run`` is interrupted while a real Grid Engine accepts its job."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from held_command import SIGNALS, check_cancelled_by_interruption

from torchx_sched_sge.system import Sge


@pytest.fixture
def environment(
    environment: dict[str, str], running: tuple[Path, dict[str, str]]
) -> dict[str, str]:
    return {**environment, **running[1]}


def queued() -> list[str]:
    """Return the names of the jobs in the queue."""
    return [job.name for job in Sge().listing(None)[0].values()]


@pytest.mark.gate
@pytest.mark.parametrize("number", dict(SIGNALS))
def test_job_of_an_interrupted_qsub_is_deleted(
    cluster: Path,
    environment: dict[str, str],
    torchx: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    check_cancelled_by_interruption("sge", "qsub", number, environment, tmp_path, torchx, queued)
