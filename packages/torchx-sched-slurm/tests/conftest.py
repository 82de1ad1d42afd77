"""Doubles of Slurm's commands, and a scheduler for dry runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler

# Make slurm_requests importable.
sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture
def command_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that makes a double of a command from a line of shell.

    The function returns the file to which the double appends its arguments, one line for each call.
    """
    folder = tmp_path / "doubles"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))

    def make(name: str, line: str) -> Path:
        calls = folder / f"{name}.calls"
        program = folder / name
        program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\necho \"$*\" >> '{calls}'\n{line}\n")
        program.chmod(0o755)
        return calls

    assert sys.platform != "win32"
    return make


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmScheduler:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("PATH", "")  # a dry run runs no command
    monkeypatch.chdir(tmp_path)
    return create_scheduler("test", docker_client=None, experiment="ignored")
