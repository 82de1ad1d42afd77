"""Programs named like Slurm's, which say what a test wants them to say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Double = Callable[..., Path]


@pytest.fixture
def command_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    """Makes a double of a command: a line of shell; gives the file of its calls, line by line."""
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
