"""A Grid Engine cluster of three hosts, and a scheduler for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import sge as service
from one_cluster import enter, started

from torchx_sched_sge.scheduler import SgeScheduler, create_scheduler
from torchx_specs import is_terminal


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the directory of a cluster, and the variables with which clients find the cluster."""
    with started(service, "sge") as running:
        yield running


@pytest.fixture
def cluster(
    running: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the cluster's directory, after a change to a new directory with a new TORCHX_HOME."""
    return enter(running, tmp_path, monkeypatch)


@pytest.fixture
def scheduler(cluster: Path) -> Iterator[SgeScheduler]:
    """Yield a scheduler; then delete the jobs that the test has left in the queue."""
    scheduler = create_scheduler("test", patience=20.0)
    yield scheduler
    for found in scheduler.list():
        if not is_terminal(found.state):
            scheduler.cancel(found.app_id)
    scheduler.close()
