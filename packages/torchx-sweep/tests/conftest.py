"""Fixtures of the tests of sweeps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# The tests import sweep_helpers, which is in the same folder as this file.
sys.path.insert(0, os.path.dirname(__file__))

from sweep_helpers import Torchx, command

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def train(
    n: int, out: str, lr: float = 0.1, code: int = 0, sleep: float = 0.0, gpu: int = 0
) -> AppDef:
    """Append the number to a file, and end with an exit code.

    Args:
        n: A number.
        out: A file.
        lr: A rate.
        code: The exit code.
        sleep: Seconds before the end.
        gpu: Number of GPUs.
    """
    script = f"echo {n} >> {out}; echo element {n} GPU=$CUDA_VISIBLE_DEVICES; sleep {sleep}"
    script += f"; exit {code}"
    role = Role("main", image="", entrypoint="sh", args=["-c", script])
    role.resource = Resource(cpu=1, gpu=gpu, memMB=1)
    return AppDef("train", roles=[role])


def sized(n: int, msg: str = "") -> AppDef:
    """Run some replicas.

    Args:
        n: Number of replicas.
        msg: A text.
    """
    role = Role("main", image="", entrypoint="echo", args=[msg], num_replicas=n)
    role.resource = Resource(cpu=1, gpu=0, memMB=1)
    return AppDef("sized", roles=[role])
'''


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a new folder with a component file; return the TORCHX_HOME of the test."""
    for name in list(os.environ):
        if name.startswith(("TORCHX", "CUDA_VISIBLE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comp.py").write_text(COMPONENT)
    return tmp_path / "torchx"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the file to which the elements append their numbers."""
    return tmp_path / "out"


@pytest.fixture
def torchx() -> Torchx:
    """Return a function that runs ``torchx`` to its end, and returns the finished process."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )

    return run
