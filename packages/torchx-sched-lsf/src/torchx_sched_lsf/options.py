"""The scheduler's options, and the checks of their values that need no cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchx_kit.batch.options import common_problems
from torchx_kit.jobs.attempts import AttemptOpts
from torchx_kit.times import limit_seconds, native_limit

#: The values of the option ``container``.
CONTAINERS = ("docker", "apptainer", "none")

_TIME = re.compile(r"\d+(:\d+)?")


@dataclass
class LsfOpts(AttemptOpts):
    """Options of ``lsf``."""

    lsf_queue: str | None = None
    """submit to this queue (default: the cluster's)"""

    project: str | None = None
    """charge the jobs to this project, as bsub -P does (default: LSB_DEFAULTPROJECT or the
    cluster's)"""

    jobdir: str | None = None
    """run in this directory, which also gets the logs (default: the current directory); it must be
    on a file system that all hosts share, and is created if missing. With a workspace, the
    directory must not exist; the workspace is copied to it"""

    container_workdir: str | None = None
    """use this working directory in containers"""

    host_network: bool = False
    """use the host's network in containers (default: publish the role's ports)"""

    shm_size: str = "64m"
    """limit the shared memory (/dev/shm) of containers to this size"""

    time: str | None = None
    """limit the run time (default: the queue's limit): minutes, hours:minutes, or a time with a
    unit: 90s, 30m, 2h, 1d"""

    dependency: str | None = None
    """start when this condition holds, as bsub -w does. Example: dependency=done(1) && ended(2)"""

    container: str | None = None
    """run the role's image with docker, apptainer or none (default: docker, or none if the image is
    empty, a directory, or the default image of components)"""

    setup: list[str] | None = None
    """run these lines of bash on the replica's host before the program. They run in the shell that
    becomes the program, or the container runtime; if a line fails, the replica fails. Example:
    setup=module load cuda/12.4;conda activate train"""

    extra: list[str] | None = None
    """add arguments of bsub. Example: extra=-app;training;-sp;50"""

    @property
    def time_limit(self) -> str | None:
        """The option ``time`` in the form of bsub -W; None if it is not valid."""
        return native_limit(self.time or "", _TIME, 60)

    @property
    def seconds(self) -> int | None:
        """The option ``time`` in seconds; None without a limit."""
        return limit_seconds(self.time_limit, 60)


def option_problems(opts: LsfOpts) -> Iterator[str]:
    """Yield the problems of the options' values, one line each."""
    texts = ("lsf_queue", "project", "jobdir", "container_workdir", "shm_size", "dependency")
    yield from common_problems(opts, texts, {"container": CONTAINERS})
    if opts.jobdir and re.search(r"[%#]", opts.jobdir):
        yield f"option jobdir: {opts.jobdir!r} contains '%' or '#', which bsub would replace"
    if opts.time and not opts.time_limit:
        yield f"option time: '{opts.time}' is not a time limit; use 2h, minutes or hours:minutes"
