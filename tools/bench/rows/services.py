"""The services that rows need, started for one run of a script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
import docker_engine
import registry
from service_process import environment

BUSYBOX = docker_engine.BUSYBOX
_DISK_BYTES = 16 << 30  # of which no more is taken than is written


@contextmanager
def engine() -> Iterator[None]:
    """A Docker Engine, to which the environment points; ends the script if there is none."""
    with disk(Path.cwd() / "engine") as folder:
        try:
            try:
                os.environ.update(docker_engine.start(folder))
            except (docker_engine.ServiceError, OSError) as e:
                raise SystemExit(f"no Docker Engine: {' '.join(str(e).split())}") from None
            yield
        finally:
            docker_engine.destroy(folder, keep_files=True)


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Makes a folder that is a disk of its own, where that can be.

    ext4 takes no inode that was deleted in the last minutes, and looks for another one by one: what
    one side has deleted would take the other's time.
    """
    folder.mkdir()
    image = folder.with_suffix(".ext4")
    with open(image, "wb") as file:
        file.truncate(_DISK_BYTES)
    make = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image)]
    mount = ["mount", "-o", "loop,noinit_itable", str(image), str(folder)]
    is_mounted = all(map(_succeeds, (make, mount)))
    try:
        yield folder
    finally:
        if is_mounted:
            _succeeds(["umount", "-l", str(folder)])
        image.unlink()


def _succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, env=environment({}), capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@contextmanager
def container_registry() -> Iterator[str]:
    """A container registry, of which the name is given; ends the script if there is none."""
    with tempfile.TemporaryDirectory(prefix="torchx-bench-") as name:
        try:
            try:
                yield registry.start(Path(name))
            except (registry.ServiceError, OSError) as e:
                raise SystemExit(f"no registry: {' '.join(str(e).split())}") from None
        finally:
            registry.stop(Path(name))
