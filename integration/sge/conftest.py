"""A Grid Engine cluster of three hosts, and a scheduler for it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import sge as service

from torchx_sched_sge.scheduler import SgeScheduler, create_scheduler
from torchx_specs import is_terminal


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the directory of a cluster, and the variables with which clients find the cluster."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-sge-"))
    try:
        yield folder, service.start(folder)
    finally:
        service.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(
    running: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the cluster's directory, after a change to a new directory with a new TORCHX_HOME."""
    folder, variables = running
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "submitted from here"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return folder


@pytest.fixture
def scheduler(cluster: Path) -> Iterator[SgeScheduler]:
    """Yield a scheduler; then delete the jobs that the test has left in the queue."""
    scheduler = create_scheduler("test", patience=20.0)
    yield scheduler
    for found in scheduler.list():
        if not is_terminal(found.state):
            scheduler.cancel(found.app_id)
    scheduler.close()
