"""Fixtures: a Docker Engine with an image that has bash, which NeMo-Run runs in containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "services"))

import docker_engine

BASH = "torchx-test/bash:1"


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """Start an engine, and yield the environment variables by which clients find it."""
    missing = [name for name in ("dockerd", "busybox", "bash") if _program(name) is None]
    if (missing or os.getuid()) and not os.environ.get("CI"):
        reason = f"{', '.join(missing)} not installed" if missing else "not root"
        pytest.skip(f"cannot start a Docker Engine: {reason}; see integration/install.sh")
    folder = Path(tempfile.mkdtemp(prefix="torchx-nemo-"))
    try:
        variables = docker_engine.start(folder, addresses="10.214.0.0/16")
        import_bash(variables)
        yield variables
    finally:
        docker_engine.destroy(folder)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def import_bash(variables: dict[str, str]) -> None:
    """Build an image from the busybox image, bash and its shared libraries."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        bash = Path("/bin/bash").resolve()
        (folder / "usr/bin").mkdir(parents=True)
        shutil.copy2(bash, folder / "usr/bin/bash")
        for path in docker_engine._libraries([bash]):
            target = folder / str(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        (folder / "Dockerfile").write_text(
            f"FROM {docker_engine.BUSYBOX}\nCOPY . /\nENV PATH=/usr/bin:/bin\n"
        )
        subprocess.run(
            ["docker", "build", "-q", "-t", BASH, root],
            env={**os.environ, **variables, "DOCKER_BUILDKIT": "0"},
            stdout=subprocess.DEVNULL,
            check=True,
        )


@pytest.fixture
def image(engine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of the image with bash; given a name, NeMo-Run would pull the image."""
    for name, value in engine.items():
        monkeypatch.setenv(name, value)
    command = ["docker", "images", "--no-trunc", "-q", BASH]
    return subprocess.check_output(command, text=True).strip()
