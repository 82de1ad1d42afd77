"""A registry and a Docker Engine for the whole session."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import docker_engine
import registry


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """The variables with which clients find the engine."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    try:
        yield docker_engine.start(folder)
    finally:
        docker_engine.destroy(folder)


@pytest.fixture(scope="session")
def registry_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="torchx-registry-"))
    try:
        yield folder
    finally:
        registry.stop(folder)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def registry_name(registry_folder: Path) -> str:
    """The registry, as images name it."""
    return registry.start(registry_folder)


@pytest.fixture(autouse=True)
def environment_of_engine(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in engine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
