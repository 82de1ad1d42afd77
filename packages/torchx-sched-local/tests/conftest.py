"""Fixtures of the tests of this package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# For local_helpers, beside this file.
sys.path.insert(0, os.path.dirname(__file__))

from local_helpers import python

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set TORCHX_HOME to a folder of the test."""
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
    """Return a function that starts programs, which are killed at the end of the test."""
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
            os.killpg(process.pid, signal.SIGKILL)  # and its forked children
        except ProcessLookupError:
            pass
        process.wait()
        if process.stdout:
            process.stdout.close()
