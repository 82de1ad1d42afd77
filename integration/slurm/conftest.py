"""Fixtures: Slurm clusters (with accounting, without it, of a newer release) and a scheduler."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import slurm as service
from slurm_jobs import ACCOUNTING, PLAIN, RELEASES, Cluster, TimedJobs, app

from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import is_terminal

#: How long the controllers remember ended jobs, in seconds.
MIN_JOB_AGE = 2


@functools.cache
def _start(kind: str) -> Cluster:
    release = kind if kind in RELEASES else ""
    if release:
        _need_chroot(release)
    folder = Path(tempfile.mkdtemp(prefix="torchx-slurm-"))
    accounting = kind == ACCOUNTING
    try:
        variables = service.start(
            folder, accounting=accounting, min_job_age=MIN_JOB_AGE, release=release
        )
    except BaseException:
        service.stop(folder)
        raise
    return Cluster(folder, variables, accounting)


def _need_chroot(release: str) -> None:
    """Install a release with debootstrap; if that is missing, fail in CI, else skip the test."""
    if shutil.which("debootstrap") or os.environ.get("CI"):
        service.make_chroot(release)
    else:
        pytest.skip(
            f"Slurm of Debian {release} is not tested: debootstrap is missing;"
            " run integration/install.sh slurm"
        )


@pytest.fixture(scope="session")
def clusters() -> Iterator[Callable[[str], Cluster]]:
    """Yield a function that returns a cluster of a kind; its first call starts the cluster."""
    started: list[Cluster] = []

    def get(kind: str) -> Cluster:
        cluster = _start(kind)
        if cluster not in started:
            started.append(cluster)
        return cluster

    yield get
    for cluster in started:
        service.stop(cluster.folder)
        shutil.rmtree(cluster.folder, ignore_errors=True)


@pytest.fixture
def cluster(
    clusters: Callable[[str], Cluster],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Cluster:
    """Return the cluster that the test's parameter selects (default: without accounting)."""
    found = clusters(getattr(request, "param", PLAIN))
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def long_memory(cluster: Cluster) -> Iterator[None]:
    """Let the controller remember ended jobs during a test.

    On the clusters of these tests, the controller forgets a job a few seconds after its end. A test
    that asks Slurm itself about an ended job, or TorchX about a job of which it has no record,
    would fail on a machine that stalls for so long.
    """
    service.set_min_job_age(cluster.folder, cluster.variables, 600)
    yield
    service.set_min_job_age(cluster.folder, cluster.variables, MIN_JOB_AGE)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new directory and return it; set TORCHX_HOME to another new directory."""
    folder = tmp_path / "submitted from here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return folder


@pytest.fixture
def scheduler(cluster: Cluster, work: Path) -> Iterator[SlurmScheduler]:
    """Yield a scheduler; then cancel the jobs that the test has left on the cluster."""
    scheduler = create_scheduler("test", patience=20.0)
    yield scheduler
    for found in scheduler.list():
        if not is_terminal(found.state):
            scheduler.cancel(found.app_id)
    scheduler.close()


@pytest.fixture
def own(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Yield a cluster of two nodes that only one test uses, for example to stop its controller."""
    folder = tmp_path / "own"
    variables = service.start(folder, nodes=2)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield Cluster(folder, variables, False)
    service.stop(folder)


@pytest.fixture(scope="session", autouse=True)
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedJobs]:
    """Yield jobs with a time limit of a minute, the shortest that Slurm has.

    They start before all tests, on a separate cluster, so that no test has to wait a minute.
    """
    folder = tmp_path_factory.mktemp("timed")
    variables = service.start(folder / "cluster", nodes=2, min_job_age=600)
    variables |= {"TORCHX_HOME": str(folder / "torchx")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        scheduler = create_scheduler("test")
        line = "trap 'echo signalled; exit 0' USR1; for i in {1..900}; do sleep 0.2; done"
        # Slurm checks this every half a minute, and may send the signal that much too early: here
        # at least 29 seconds after the job's start, when the command has set its trap.
        signalled = scheduler.submit(app(line), {"time": "1", "signal": "USR1@1"})
        killed = scheduler.submit(app("sleep 86400"), {"time": "1"})
    yield TimedJobs(variables, signalled, killed)
    service.stop(folder / "cluster")
