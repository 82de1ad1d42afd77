"""A Docker Engine for the whole session, and a scheduler on it."""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import docker_engine

from torchx_sched_docker.scheduler import DockerScheduler, create_scheduler
from torchx_specs import is_terminal
from torchx_specs.schedulers import DescribeAppResponse


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """The variables with which clients find the engine."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    try:
        yield docker_engine.start(folder, python=True)
    finally:
        docker_engine.destroy(folder)


@pytest.fixture
def scheduler(
    engine: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[DockerScheduler]:
    """A scheduler; what the test leaves on the engine is a failure."""
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


@pytest.fixture
def finished(scheduler: DockerScheduler) -> Callable[[str], DescribeAppResponse]:
    """Waits until an app has ended, and describes it."""

    def wait(app_id: str) -> DescribeAppResponse:
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            described = scheduler.describe(app_id)
            assert described is not None
            if is_terminal(described.state):
                return described
            scheduler.wait(app_id, 1)
        raise AssertionError(f"{app_id} does not end: {described}")

    return wait
