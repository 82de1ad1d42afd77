"""Fixtures for the real LSF if ``bsub`` is on PATH, otherwise for a double of LSF."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from torchx_sched_lsf.scheduler import LsfScheduler, create_scheduler

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

DOUBLE = Path(__file__).resolve().parent / "lsf_double.py"
PROGRAMS = (
    *("bsub", "bjobs", "bkill", "bparams", "brequeue", "bstop", "bresume", "bhist", "bhosts"),
)


@pytest.fixture(scope="session")
def real_lsf() -> bool:
    return shutil.which("bsub") is not None


@pytest.fixture
def lsf(real_lsf: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """Return the directory of the double's state, or None with the real LSF."""
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    work = tmp_path / "submitted from here"
    work.mkdir()
    monkeypatch.chdir(work)
    if real_lsf:
        return None
    programs = tmp_path / "bin"
    state = tmp_path / "lsf-double"
    programs.mkdir()
    state.mkdir()
    for name in PROGRAMS:
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{DOUBLE}" {name} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("LSF_DOUBLE_DIR", str(state))
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return state


@pytest.fixture
def scheduler(lsf: Path | None, real_lsf: bool) -> LsfScheduler:
    """Return a scheduler on the double; skip the test with the real LSF."""
    if real_lsf:
        pytest.skip("bsub is on PATH: this test needs the double")
    return create_scheduler("test")
