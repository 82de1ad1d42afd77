from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# the tests' own module beside this file
sys.path.insert(0, os.path.dirname(__file__))

from local_helpers import python

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TORCHX_HOME of the test's own."""
    path = tmp_path / "torchx home"
    monkeypatch.setenv("TORCHX_HOME", str(path))
    monkeypatch.delenv("TORCHX_LOCAL_RETENTION", raising=False)
    return path


@pytest.fixture
def scheduler() -> Iterator[LocalScheduler]:
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


@pytest.fixture
def launcher() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts programs that are killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            python(code, *args), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what it has forked, too
        except ProcessLookupError:
            pass
        process.wait()
        if process.stdout:
            process.stdout.close()
