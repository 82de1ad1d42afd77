"""Fixtures of the tests of this package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# The tests import local_helpers, which is beside this file.
sys.path.insert(0, os.path.dirname(__file__))

from local_helpers import python

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set TORCHX_HOME to a folder of the test that does not exist yet; return the folder.

    Also activate the environment of the tests.
    """
    path = tmp_path / "torchx home"
    monkeypatch.setenv("TORCHX_HOME", str(path))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    return path


@pytest.fixture
def scheduler() -> Iterator[LocalScheduler]:
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


@pytest.fixture
def launcher() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Yield a function that starts Python programs; the end of the test kills the programs."""
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
            os.killpg(process.pid, signal.SIGKILL)  # also kills children that the program forked
        except ProcessLookupError:
            pass
        process.wait()
        if process.stdout:
            process.stdout.close()
