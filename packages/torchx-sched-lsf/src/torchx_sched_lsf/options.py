"""The scheduler's options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchx_specs.errors import nearest
from torchx_specs.options.structured import StructuredOpts

CONTAINERS = ("docker", "apptainer", "none")

_TIME = re.compile(r"\d+(:\d+)?")


@dataclass
class LsfOpts(StructuredOpts):
    """Options of ``lsf``."""

    lsf_queue: str | None = None
    """queue to submit to, the cluster's default unless given"""

    jobdir: str | None = None
    """folder of the job, on a file system that all hosts see: its working directory, in which its
    logs are; made if there is none. A workspace is copied to it, and then it must be new. Without
    it the job runs in the current directory"""

    container_workdir: str | None = None
    """working directory in containers"""

    host_network: bool = False
    """lets containers use the host's network; otherwise the role's ports are published"""

    shm_size: str = "64m"
    """size of shared memory (/dev/shm) in containers"""

    time: str | None = None
    """time limit: minutes, or hours:minutes"""

    container: str | None = None
    """what runs the role's image: docker, apptainer or none. By default docker, unless the image is
    empty or a folder"""

    extra: list[str] | None = None
    """further words for bsub: -app;training;-sp;50"""


def option_problems(opts: LsfOpts) -> Iterator[str]:
    """Yields what is wrong with the options, one line each."""
    for key in ("lsf_queue", "jobdir", "container_workdir", "shm_size"):
        value = opts[key]
        if isinstance(value, str) and re.search(r"[\0-\x1f\x7f]", value):
            yield f"option {key}: {value!r} holds a control character"
    if opts.jobdir and re.search(r"[%#]", opts.jobdir):
        yield f"option jobdir: {opts.jobdir!r} holds % or #, which bsub replaces in file names"
    if opts.time and not _TIME.fullmatch(opts.time):
        yield f"option time: '{opts.time}' is no time limit; write minutes or hours:minutes"
    if opts.container and opts.container not in CONTAINERS:
        hint = nearest(opts.container, CONTAINERS)
        yield f"option container: '{opts.container}' is none of {', '.join(CONTAINERS)};{hint}"
