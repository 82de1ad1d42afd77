"""Fixtures of a batch system that all tests of a folder share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest


@contextmanager
def started(service: ModuleType, name: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Start a batch system; return its directory, and the variables with which clients find it."""
    folder = Path(tempfile.mkdtemp(prefix=f"torchx-{name}-", dir="/tmp"))
    try:
        yield folder, service.start(folder)
    finally:
        service.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


def enter(
    running: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Change to a new directory with a new TORCHX_HOME; return the directory of the system."""
    folder, variables = running
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "submitted from here"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return folder
