"""Start the services that measured scripts need."""

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
_DISK_BYTES = 16 << 30  # The size of the sparse file that contains the file system.


@contextmanager
def engine() -> Iterator[None]:
    """Start a Docker Engine and set DOCKER_HOST; exit the script if it does not start."""
    with disk(Path.cwd() / "engine") as folder:
        try:
            try:
                os.environ.update(docker_engine.start(folder))
            except (docker_engine.ServiceError, OSError) as e:
                raise SystemExit(
                    f"cannot start a Docker Engine: {' '.join(str(e).split())}"
                ) from None
            yield
        finally:
            docker_engine.destroy(folder, keep_files=True)


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Create a folder, and mount a new ext4 file system on it if possible.

    For some minutes after a file was deleted, ext4 does not reuse its inode, and the search for a
    free inode takes longer. On a shared file system, deletions of one side would slow down the
    other side.
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
    """Start a container registry and yield its name; exit the script if it does not start."""
    with tempfile.TemporaryDirectory(prefix="torchx-bench-") as name:
        try:
            try:
                yield registry.start(Path(name))
            except (registry.ServiceError, OSError) as e:
                raise SystemExit(f"cannot start a registry: {' '.join(str(e).split())}") from None
        finally:
            registry.stop(Path(name))
