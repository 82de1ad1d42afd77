"""The scheduler's options, and the checks of their values that need no pool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchx_kit.batch.options import common_problems
from torchx_kit.jobs.attempts import AttemptOpts
from torchx_kit.times import limit_seconds, native_limit

#: The values of the option ``container``.
CONTAINERS = ("apptainer", "none")

_TIME = re.compile(r"(?:(?:\d+:)?\d+:)?\d+")
_COMMAND = re.compile(r"([+\w.]+)\s*=.*")
# Commands of the submit description that TorchX sets, with the reason or an alternative.
_RESERVED = {
    "executable": "TorchX submits a script",
    "arguments": "use the arguments of the role",
    "queue": "use Role.num_replicas",
    "universe": "the jobs are those of the vanilla universe",
    "initialdir": "use the option job_dir",
    "batch_name": "use AppDef.name",
    "hold": "TorchX holds the jobs until all of them are submitted",
    "max_materialize": "use torchx sweep --max-parallel",
}


@dataclass
class HTCondorOpts(AttemptOpts):
    """Options of ``htcondor``."""

    accounting_group: str | None = None
    """charge the jobs to this group (default: the site's)"""

    requirements: str | None = None
    """run only on machines that satisfy this expression. Example: requirements='Machine != "n1"'"""

    time: str | None = None
    """limit the run time of each replica (default: the site's limit): seconds, minutes:seconds,
    hours:minutes:seconds, or a time with a unit: 90s, 30m, 2h, 1d"""

    job_dir: str | None = None
    """run in this directory, which also gets the logs (default: the current directory); it must be
    on a file system that all machines share, and is created if missing. With a workspace, the
    directory must not exist; the workspace is copied to it"""

    container: str | None = None
    """run the role's image with apptainer or none (default: apptainer, or none if the image is
    empty, a directory, or the default image of components)"""

    inherit_env: bool = True
    """start the replicas with the variables of the submission; False leaves only those of HTCondor
    and of the role"""

    setup: list[str] | None = None
    """run these lines of bash on the replica's machine before the program. They run in the shell
    that becomes the program, or the container runtime; if a line fails, the replica fails. Example:
    setup=module load cuda/12.4;conda activate train"""

    extra: list[str] | None = None
    """add commands of the submit description; they replace those that TorchX derives from the
    role's resource. Example: extra='priority = 5';'request_disk = 2GB'"""

    @property
    def seconds(self) -> int | None:
        """The limit of the run time, in seconds; None without a limit."""
        return limit_seconds(native_limit(self.time or "", _TIME, 1), 1)


def command_name(line: str) -> str:
    """Return the name of a command of a submit description; empty if the line is not a command."""
    match = _COMMAND.fullmatch(line.strip())
    return match[1].lower() if match else ""


def option_problems(opts: HTCondorOpts) -> Iterator[str]:
    """Yield the problems of the options' values, one line each."""
    texts = ("accounting_group", "requirements", "job_dir")
    yield from common_problems(opts, texts, {"container": CONTAINERS})
    if opts.accounting_group and not re.fullmatch(r"[\w.@-]+", opts.accounting_group):
        yield (
            f"option accounting_group: '{opts.accounting_group}' is not a name; use letters,"
            " digits, '_', '.', '@' and '-'"
        )
    if opts.time and not opts.seconds:
        yield (
            f"option time: '{opts.time}' is not a time limit; use 2h, seconds, minutes:seconds or"
            " hours:minutes:seconds"
        )
    for line in opts.extra or ():
        name = command_name(line)
        if not name or re.search(r"[\0-\x1f\x7f]", line):
            yield f"option extra: {line!r} is not valid; use NAME = VALUE"
        elif name in _RESERVED:
            yield f"option extra: '{name}' cannot be set; {_RESERVED[name]}"
