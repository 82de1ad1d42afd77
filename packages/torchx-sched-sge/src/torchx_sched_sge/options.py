"""The scheduler's options, and the checks of their values that need no cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchx_kit.batch.options import common_problems
from torchx_kit.jobs.attempts import AttemptOpts
from torchx_kit.times import limit_seconds, native_limit

#: The values of the option ``container``.
CONTAINERS = ("apptainer", "none")

_TIME = re.compile(r"\d+|\d+:\d{1,2}:\d{1,2}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass
class SgeOpts(AttemptOpts):
    """Options of ``sge``."""

    queue: str | None = None
    """submit to this queue, as qsub -q does (default: any queue that fits)"""

    project: str | None = None
    """charge the jobs to this project, as qsub -P does (default: the user's default project)"""

    pe: str = "smp"
    """request the CPUs of a replica, if they are more than one, from this parallel environment; its
    allocation rule must be $pe_slots"""

    memory: str = "mem_free"
    """request memMB of a replica as this resource; an empty string requests no memory"""

    memory_per_slot: bool = False
    """divide the memory by the replica's CPUs, for a resource that is consumed for each slot, such
    as h_vmem"""

    gpu: str = "gpu"
    """request the GPUs of a replica as this resource"""

    time: str | None = None
    """limit the run time, as qsub -l h_rt does (default: the queue's limit): seconds,
    hours:minutes:seconds, or a time with a unit: 90s, 30m, 2h, 1d"""

    job_dir: str | None = None
    """run in this directory, which also gets the logs (default: the current directory); it must be
    on a file system that all hosts share, and is created if missing. With a workspace, the
    directory must not exist; the workspace is copied to it"""

    container: str | None = None
    """run the role's image with apptainer or none (default: apptainer, or none if the image is
    empty, a directory, or the default image of components)"""

    inherit_env: bool = True
    """start the replicas with the variables of the submission; False leaves only those of Grid
    Engine and of the role"""

    setup: list[str] | None = None
    """run these lines of bash on the replica's host before the program. They run in the shell that
    becomes the program, or the container runtime; if a line fails, the replica fails. Example:
    setup=module load cuda/12.4;conda activate train"""

    extra: list[str] | None = None
    """add arguments of qsub; quote a value that contains = after a separator. Example:
    extra='-l;h=n1;-R;y'"""

    @property
    def time_limit(self) -> str | None:
        """The option ``time`` in the form of h_rt; None if it is not valid."""
        return native_limit(self.time or "", _TIME, 1)

    @property
    def seconds(self) -> int | None:
        """The option ``time`` in seconds; None without a limit."""
        return limit_seconds(self.time_limit, 1)


def option_problems(opts: SgeOpts) -> Iterator[str]:
    """Yield the problems of the options' values, one line each."""
    texts = ("queue", "project", "job_dir")
    yield from common_problems(opts, texts, {"container": CONTAINERS})
    for key, value in {"pe": opts.pe, "memory": opts.memory, "gpu": opts.gpu}.items():
        if not _NAME.fullmatch(value) and (value or key != "memory"):
            yield f"option {key}: {value!r} is not a name; use letters, digits, '_', '.' and '-'"
    if opts.time and not opts.time_limit:
        yield (
            f"option time: '{opts.time}' is not a time limit; use 2h, seconds or"
            " hours:minutes:seconds"
        )
