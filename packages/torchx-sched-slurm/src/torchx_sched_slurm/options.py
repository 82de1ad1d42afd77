"""The scheduler's options, and what is checked of them without asking Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torchx_specs.errors import RequestError, nearest
from torchx_specs.options.structured import StructuredOpts

#: Options that every component of a heterogeneous job repeats.
SBATCH_GROUP_OPTIONS = {"partition", "time", "constraint", "qos"}
#: Options of the job as a whole, given on sbatch's command line.
SBATCH_JOB_OPTIONS = {"account", "comment", "mail-user", "mail-type"}
#: Further options of ours that are directives of the same name, in every component.
DIRECTIVES = ("reservation", "nodelist", "exclude", "dependency", "signal")

#: How GPUs are asked for.
GPU_OPTIONS = ("gpus-per-node", "gpus-per-task", "gres")
#: What starts containers.
CONTAINERS = ("pyxis", "apptainer")

_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite|unlimited", re.I)
_SIGNAL = re.compile(r"([RB]{1,2}:)?([A-Z]+[0-9]?|[0-9]+)(@\d+)?", re.I)
_DIRECTIVE = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9-]*)(?:=(.*))?", re.S)
# Directives that the script cannot do with a value that it does not know of.
_OURS = {
    "nodes": "num_replicas of the roles says how many",
    "ntasks": "num_replicas of the roles says how many",
    "ntasks-per-node": "the option replicas_per_node says it",
    "parsable": "it is given anyway",
    "array": "an app is one job",
    "wrap": "the script is what runs",
    "test-only": "use torchx run --dryrun",
    "chdir": "use the option job_dir",
    "job-name": "it is the app's name",
}


@dataclass
class SlurmOpts(StructuredOpts):
    """Options of ``slurm``."""

    account: str | None = None
    """account that is charged"""

    partition: str | None = None
    """partition to run in, the cluster's default unless given"""

    time: str | None = None
    """time limit: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes
    or days-hours:minutes:seconds"""

    comment: str | None = None
    """comment of the job; a mark that tells submissions apart is added to it"""

    constraint: str | None = None
    """features the nodes must have, as in sbatch --constraint"""

    mail_user: str | None = field(default=None, metadata={"cfg_key": "mail-user"})
    """who gets mail"""

    mail_type: str | None = field(default=None, metadata={"cfg_key": "mail-type"})
    """when mail is sent: BEGIN, END, FAIL, ALL ..."""

    job_dir: str | None = None
    """folder of the job, on a file system that all nodes see: its working directory, in which its
    logs are; made if there is none. A workspace is copied to it, and then it must be new. Without
    it the job runs in the current directory"""

    qos: str | None = None
    """quality of service"""

    reservation: str | None = None
    """reservation to run in"""

    nodelist: str | None = None
    """nodes that must be among those of the job"""

    exclude: str | None = None
    """nodes not to use"""

    exclusive: bool = False
    """shares the nodes with no other job"""

    dependency: str | None = None
    """jobs to wait for, as in sbatch --dependency"""

    signal: str | None = None
    """signal to send before the time limit, as in sbatch --signal: USR1@60"""

    nomem: bool = False
    """asks for no memory: for clusters that do not manage it"""

    replicas_per_node: int = 1
    """replicas of a role that share a node"""

    gpu_option: str = "gpus-per-node"
    """how GPUs are asked for: gpus-per-node, gpus-per-task or gres"""

    gpu_type: str | None = None
    """type of the GPUs, as the site names it: a100"""

    container: str | None = None
    """runs the role's image: pyxis or apptainer; without it the image is a folder, or ignored"""

    srun: list[str] | None = None
    """further options of srun: --mpi=pmix;--cpu-bind=cores"""

    extra: list[str] | None = None
    """any other sbatch directives: nice=100;begin=now+1hour"""


def option_problems(opts: SlurmOpts) -> Iterator[str]:
    """Yields what is wrong with the options, one line each."""
    for key in opts:
        value = opts[key]
        if isinstance(value, str) and re.search(r"[\0-\x1f\x7f]", value):
            yield f"option {key}: {value!r} holds a control character"
    if opts.time and not _TIME.fullmatch(opts.time):
        yield (
            f"option time: '{opts.time}' is no time limit; write minutes, hours:minutes:seconds"
            " or days-hours:minutes:seconds"
        )
    if opts.signal and not _SIGNAL.fullmatch(opts.signal):
        yield f"option signal: '{opts.signal}' is not of the form [R|B:]NAME[@seconds]"
    if opts.replicas_per_node < 1:
        yield f"option replicas_per_node: {opts.replicas_per_node} is less than 1"
    if opts.gpu_option not in GPU_OPTIONS:
        hint = nearest(opts.gpu_option, GPU_OPTIONS)
        yield f"option gpu_option: '{opts.gpu_option}' is none of {', '.join(GPU_OPTIONS)};{hint}"
    if opts.container and opts.container not in CONTAINERS:
        hint = nearest(opts.container, CONTAINERS)
        yield f"option container: '{opts.container}' is none of {', '.join(CONTAINERS)};{hint}"
    for text in (*(opts.extra or ()), *(opts.srun or ())):
        found = _DIRECTIVE.fullmatch(text)
        if found is None:
            yield f"option extra or srun: '{text}' is not of the form name or name=value"
        elif text in (opts.extra or ()) and found[1] in _OURS:
            yield f"option extra: {found[1]} can't be set: {_OURS[found[1]]}"


def directive(text: str) -> tuple[str, str | None]:
    """Returns name and value (None for a flag) of ``name``, ``name=value`` or ``--name=value``.

    Raises:
        RequestError: it is none
    """
    found = _DIRECTIVE.fullmatch(text)
    if found is None:
        raise RequestError(f"'{text}' is not of the form name or name=value")
    return found[1], found[2]
