"""Fixtures: a Docker Engine for the whole session, and a scheduler that uses it."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import docker_engine

from torchx_sched_docker.scheduler import DockerScheduler, create_scheduler

#: The Debian release of the second engine, newer than the release of this machine. CI uses trixie;
#: the environment variable selects another release, for example sid.
RELEASE = os.environ.get("TORCHX_TEST_DOCKER_RELEASE", "trixie")
#: The image stores of the second engine; the values are the option ``containerd_store``.
STORES = {"engine-store": False, "containerd-store": True}
SECOND_ENGINES = [f"{RELEASE}-{store}" for store in STORES]
#: The modules whose tests also run on the second engine, with each image store.
ON_SECOND_ENGINES = {"test_conformance", "test_workspaces"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules on every engine; only one engine runs at a time."""
    if "engine" in metafunc.fixturenames:
        engines = ["installed"]
        if metafunc.module.__name__.rpartition(".")[2] in ON_SECOND_ENGINES:
            engines += SECOND_ENGINES
        metafunc.parametrize("engine", engines, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Start an engine; return the environment variables by which clients find it.

    If the second engine cannot be installed, the tests fail with the reason.
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
    """Return a scheduler; fail if containers or networks remain after its apps were deleted."""
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
