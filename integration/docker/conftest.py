"""Fixtures: a Docker Engine for the whole session, and a scheduler that uses it."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import docker_engine

from torchx_sched_docker.scheduler import DockerScheduler, create_scheduler


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """Start an engine; return the environment variables by which clients find it."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    try:
        yield docker_engine.start(folder, python=True)
    finally:
        docker_engine.destroy(folder)


@pytest.fixture
def scheduler(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[DockerScheduler]:
    """Return a scheduler; containers or networks that the test leaves behind are a failure."""
    for name, value in engine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("HOME", str(tmp_path))
    logging.getLogger("torchx_sched_docker").setLevel(logging.ERROR)
    scheduler = create_scheduler("test")
    yield scheduler
    for app in scheduler.list():
        scheduler.delete(app.app_id)
    api = scheduler._docker_client.api
    assert api.containers(all=True) == []
    assert [n["Name"] for n in api.networks() if n["Name"].startswith("torchx")] == []
    scheduler.close()
