"""The services that rows need, started for one run of a script."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
import docker_engine
import registry

BUSYBOX = docker_engine.BUSYBOX


@contextmanager
def engine() -> Iterator[None]:
    """A Docker Engine, to which the environment points; ends the script if there is none."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-bench-"))
    try:
        try:
            os.environ.update(docker_engine.start(folder))
        except (docker_engine.ServiceError, OSError) as e:
            raise SystemExit(f"no Docker Engine: {' '.join(str(e).split())}") from None
        yield
    finally:
        docker_engine.destroy(folder)


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
