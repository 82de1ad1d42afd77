"""An HTCondor pool of four nodes, whose jobs run in a chroot with a newer Debian release."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import htcondor as service
from one_cluster import enter, started


@pytest.fixture(scope="session")
def running() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the directory of a pool, and the variables with which clients find the pool.

    Without debootstrap, which makes the chroot, the tests fail in CI and are skipped elsewhere.
    """
    if not (shutil.which("debootstrap") or os.environ.get("CI")):
        pytest.skip("debootstrap is missing; run integration/install.sh htcondor")
    service.make_chroot(service.RELEASE)
    with started(service, "htcondor") as running:
        yield running


@pytest.fixture
def pool(
    running: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the pool's directory, after a change to a new directory with a new TORCHX_HOME."""
    return enter(running, tmp_path, monkeypatch)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the directory of a pool of two nodes that only one test uses, to kill its daemons."""
    service.make_chroot(service.RELEASE)
    folder = tmp_path / "own"
    try:
        for name, value in service.start(folder, nodes=2).items():
            monkeypatch.setenv(name, value)
        yield folder
    finally:
        service.stop(folder)
