"""Fixtures of the tests of functions: a TORCHX_HOME for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx_functions.job import default_runner

# The tests import function_helpers, which is in the same folder as this file.
sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a new folder; yield the test's TORCHX_HOME, and end the test's jobs afterwards."""
    for name in list(os.environ):
        if name.startswith(("TORCHX", "CUDA_VISIBLE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    default_runner.cache_clear()
    yield tmp_path / "torchx"
    runner = default_runner()
    for app in runner.list("local_cwd"):
        runner.cancel(app.app_handle)
    runner.close()
    default_runner.cache_clear()
