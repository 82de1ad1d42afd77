"""Fixtures: an empty home, and a scheduler in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchx_specs import AppState

sys.path.insert(0, str(Path(__file__).parent))

from dashboard_helpers import MemoryScheduler


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TORCHXCONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def scheduler() -> MemoryScheduler:
    return MemoryScheduler({"a": AppState.RUNNING, "b": AppState.PENDING})
