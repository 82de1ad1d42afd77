"""Fixtures: a registry and a Docker Engine for the whole session, and a workspace."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import docker_engine
import registry
from images import make_base


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """Start an engine; return the environment variables by which clients find it."""
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
    """Start a registry; return its name (``127.0.0.1:PORT``)."""
    return registry.start(registry_folder)


@pytest.fixture(autouse=True)
def environment_of_engine(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in engine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker-config"))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work space"
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "pkg" / "deep" / "module.py").write_text("print('é')\n")
    (root / "run me.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run me.sh").chmod(0o755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    (root / "link").symlink_to("pkg/deep/module.py")
    (root / "large").write_bytes(os.urandom(20 << 20))
    (root / "left.log").write_text("excluded")
    (root / "build").mkdir()
    (root / "build" / "x").write_text("excluded")
    (root / ".torchxignore").write_text("*.log\n")
    (root / ".dockerignore").write_text("build\n")
    return root


@pytest.fixture
def base(registry_name: str) -> str:
    """Push a base image with the working directory /app; return its name."""
    image = f"{registry_name}/base/busybox:1"
    make_base(image)
    return image
