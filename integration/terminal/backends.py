"""The schedulers of the terminal tests: local processes, a Docker Engine, and a Slurm cluster."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import docker_engine
import slurm


class Backend(NamedTuple):
    """A scheduler, and how the command reaches the scheduler's service.

    Attributes:
        scheduler: Name of the scheduler.
        variables: The variables with which clients find the service.
        image: Image of the roles; empty if the scheduler needs none.
    """

    scheduler: str
    variables: dict[str, str]
    image: str = ""

    def run_words(self, *options: str) -> list[str]:
        """Return the arguments that submit a component in the background."""
        detached = [] if self.scheduler == "slurm" else ["--detach"]
        return ["run", "-s", self.scheduler, "--workspace", "", *detached, *options]


@contextmanager
def running(scheduler: str) -> Iterator[Backend]:
    """Start the service of a scheduler, and stop it at the end of the context."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-terminal-"))
    try:
        if scheduler == "local_docker":
            yield Backend(scheduler, docker_engine.start(folder), docker_engine.BUSYBOX)
        elif scheduler == "slurm":
            yield Backend(scheduler, slurm.start(folder))
        else:
            yield Backend(scheduler, {})
    finally:
        if scheduler == "local_docker":
            docker_engine.destroy(folder)
        elif scheduler == "slurm":
            slurm.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)
