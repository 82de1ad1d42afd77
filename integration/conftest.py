"""What every story needs: the command, as a user calls it, with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchx_specs.schedulers import DescribeAppResponse, Scheduler

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.prefix) / "bin"

Torchx = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure(config: pytest.Config) -> None:
    """The docker library forgets sockets with which it could not reach an engine that is down:
    whatever test runs when they are collected is not the cause."""
    never_connected = r"unclosed <socket\.socket fd=\d+, family=1, type=1, proto=0>"
    config.addinivalue_line("filterwarnings", f"ignore:{never_connected}:ResourceWarning")


@pytest.fixture
def repository() -> Path:
    return ROOT


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of a user who has nothing configured, and our environment activated."""
    home = tmp_path / "home"
    home.mkdir()
    variables = {key: value for key, value in os.environ.items() if not key.startswith("TORCHX")}
    variables.update(HOME=str(home), VIRTUAL_ENV=sys.prefix, NO_COLOR="1")
    variables["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return variables


@pytest.fixture
def torchx(environment: dict[str, str], tmp_path: Path) -> Torchx:
    """Calls ``torchx`` with some words, in an empty folder; gives what came of it."""
    folder = tmp_path / "work"
    folder.mkdir()

    def call(*words: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "torchx"), *map(str, words)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call


@pytest.fixture
def ended(scheduler: Scheduler[Any]) -> Callable[[str], DescribeAppResponse]:
    """Waits until an app of the folder's scheduler has ended, and describes it."""
    from torchx_specs import is_terminal

    def wait(app_id: str) -> DescribeAppResponse:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            found = scheduler.describe(app_id)
            assert found is not None
            if is_terminal(found.state):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{app_id} does not end: {found}")

    return wait
