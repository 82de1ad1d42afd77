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

#: The Debian release of the second engine, which is newer than this machine's.
RELEASE = "trixie"
#: The image stores of the second engine.
STORES = {"engine-store": False, "containerd-store": True}
SECOND_ENGINES = [f"{RELEASE}-{store}" for store in STORES]
#: The modules whose tests run on the second engine too.
ON_SECOND_ENGINES = {"test_conformance", "test_workspaces"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules on every engine; engines start one after the other."""
    if "engine" in metafunc.fixturenames:
        engines = ["installed"]
        if metafunc.module.__name__.rpartition(".")[2] in ON_SECOND_ENGINES:
            engines += SECOND_ENGINES
        metafunc.parametrize("engine", engines, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Start an engine; return the environment variables by which clients find it.

    If the second engine cannot be installed, the tests fail and say why.
    """
    root, containerd_store = None, False
    if request.param != "installed":
        root = docker_engine.make_chroot(RELEASE)
        containerd_store = STORES[request.param.removeprefix(f"{RELEASE}-")]
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    try:
        yield docker_engine.start(folder, python=True, root=root, containerd_store=containerd_store)
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
