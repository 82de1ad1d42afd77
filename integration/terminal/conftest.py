"""Fixtures: the ``torchx`` command on a terminal, and the services of three schedulers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from backends import Backend, running
from terminal import Terminal


@pytest.fixture(scope="module", params=["local_cwd", "local_docker", "slurm"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Start the service of each scheduler in turn."""
    with running(request.param) as found:
        yield found


@pytest.fixture
def command(backend: Backend, environment: dict[str, str], torchx: Any) -> Any:
    """Return a function that runs ``torchx`` with the variables of the backend's service."""
    environment.update(backend.variables)
    return torchx


@pytest.fixture
def on_terminal(environment: dict[str, str], tmp_path: Path) -> Callable[..., Terminal]:
    """Return a function that starts ``torchx`` with arguments on a terminal."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    shown = {key: value for key, value in environment.items() if key != "NO_COLOR"}
    shown["TERM"] = "xterm"

    def start(*words: str, **variables: str) -> Terminal:
        command = [str(Path(sys.prefix) / "bin" / "torchx"), *words]
        return Terminal(command, {**shown, **variables}, str(folder))

    return start
