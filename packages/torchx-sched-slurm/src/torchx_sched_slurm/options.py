"""The scheduler's options, and the checks of their values that need no cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torchx_kit.batch.options import common_problems
from torchx_kit.jobs.attempts import AttemptOpts
from torchx_kit.times import native_limit
from torchx_specs.errors import RequestError

#: Options that are directives of every component of a heterogeneous job.
SBATCH_GROUP_OPTIONS = {"partition", "time", "constraint", "qos"}
#: Options of the whole job, which are on the command line of sbatch.
SBATCH_JOB_OPTIONS = {"account", "comment", "mail-user", "mail-type"}
#: More options that set the directive of the same name in every component.
DIRECTIVES = ("reservation", "nodelist", "exclude", "dependency", "signal")

#: The values of the option ``gpu_option``: directives that request GPUs.
GPU_OPTIONS = ("gpus-per-node", "gpus-per-task", "gres")
#: The values of the option ``container``.
CONTAINERS = ("pyxis", "apptainer")

# Directives of which Slurm accepts one, or which contradict each other. A directive of the user
# replaces the others of its group that TorchX derives.
_EXCLUSIVE = (
    {"mem", "mem-per-cpu", "mem-per-gpu"},
    {"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "ntasks-per-gpu"},
    {"cpus-per-task", "cpus-per-gpu"},
    {"ntasks-per-node", "ntasks-per-gpu"},
)
# The names of the variables of sbatch that differ from the names of the directives.
_VARIABLES = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE", "switches": "REQ_SWITCH"}

_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|infinite|unlimited", re.I)
_SIGNAL = re.compile(r"([RB]{1,2}:)?([A-Z]+[0-9]?|[0-9]+)(@\d+)?", re.I)
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]+(/\d+)?")
_DIRECTIVE = re.compile(r"-{0,2}([A-Za-z][A-Za-z0-9-]*)(?:=(.*))?", re.S)
# Directives that users cannot set, each with an alternative or a reason.
_RESERVED = {
    "nodes": "use Role.num_replicas",
    "ntasks": "use Role.num_replicas",
    "ntasks-per-node": "use the option replicas_per_node",
    "parsable": "it is always set",
    "array": "use torchx sweep",
    "wrap": "TorchX submits a script",
    "test-only": "use torchx run --dryrun",
    "chdir": "use the option job_dir",
    "job-name": "use AppDef.name",
}


@dataclass
class SlurmOpts(AttemptOpts):
    """Options of ``slurm``."""

    account: str | None = None
    """charge this account (default: the user's)"""

    partition: str | None = None
    """run in this partition (default: the cluster's)"""

    time: str | None = None
    """limit the run time (default: the partition's limit): minutes, minutes:seconds,
    hours:minutes:seconds, days-hours, days-hours:minutes or days-hours:minutes:seconds; or a time
    with a unit: 90s, 30m, 2h, 1d"""

    comment: str | None = None
    """set the job's comment"""

    constraint: str | None = None
    """require these features of the nodes, as for sbatch --constraint"""

    mail_user: str | None = field(default=None, metadata={"cfg_key": "mail-user"})
    """notify this user by mail"""

    mail_type: str | None = field(default=None, metadata={"cfg_key": "mail-type"})
    """notify of these events: BEGIN, END, FAIL, ALL and others"""

    job_dir: str | None = None
    """run in this directory, which also gets the logs and a copy of the workspace; it must be on a
    file system that all nodes share. The directory and its parents are created; with a workspace,
    it must not exist. ${app_id} becomes the job's number. Default: the logs are in the current
    directory, and the job runs in a snapshot of the workspace below it"""

    qos: str | None = None
    """use this quality of service"""

    reservation: str | None = None
    """use this reservation"""

    nodelist: str | None = None
    """require these nodes"""

    exclude: str | None = None
    """do not use these nodes"""

    exclusive: bool = False
    """do not share the nodes with other jobs"""

    dependency: str | None = None
    """wait for other jobs, as for sbatch --dependency"""

    signal: str | None = None
    """send a signal before the time limit, as for sbatch --signal. Example: signal=USR1@60"""

    nomem: bool = False
    """do not request memory, for clusters that do not manage it"""

    replicas_per_node: int = 1
    """run this many replicas of a role on one node"""

    gpu_option: str = "gpus-per-node"
    """request GPUs by this directive: gpus-per-node, gpus-per-task or gres"""

    gpu_type: str | None = None
    """request GPUs of this type, as the cluster names it. Example: gpu_type=a100"""

    container: str | None = None
    """run the role's image with pyxis or apptainer (default: without a container)"""

    srun: list[str] | None = None
    """add options of srun. Example: srun=--mpi=pmix;--cpu-bind=cores"""

    setup: list[str] | None = None
    """run these lines of bash on the first node before the program. Their variables reach all
    replicas; if a line fails, the job fails. Example: setup=module load cuda/12.4;conda activate
    train"""

    setup_replicas: bool = False
    """run the lines of setup in each replica, on its node, instead of once on the first node"""

    interface: str | None = None
    """set TORCHX_RANK0_HOST to the address of this network interface (ib0) or in this network
    (10.1.0.0/16) of the first node (default: its name, or its first address that is not local)"""

    inherit_env: bool = False
    """pass variables of a surrounding Slurm job (SBATCH_*, SLURM_MEM_PER_* and other SLURM_*) to
    sbatch and to the new job"""

    extra: list[str] | None = None
    """add directives of sbatch; quote a value that contains = after a separator. Example:
    extra='nice=100;begin=now+1hour'"""

    @property
    def time_limit(self) -> str | None:
        """The option ``time`` in the form of sbatch; None if it is not valid."""
        return native_limit(self.time or "", _TIME, 60)


def option_problems(opts: SlurmOpts) -> Iterator[str]:
    """Yield the problems of the options' values, one line each."""
    choices = {"gpu_option": GPU_OPTIONS, "container": CONTAINERS}
    yield from common_problems(opts, opts, choices)
    if opts.time and not opts.time_limit:
        yield (
            f"option time: '{opts.time}' is not a time limit; use 2h, minutes,"
            " hours:minutes:seconds or days-hours:minutes:seconds"
        )
    if opts.signal and not _SIGNAL.fullmatch(opts.signal):
        yield f"option signal: '{opts.signal}' is not valid; use [R|B:]NAME[@seconds]"
    if opts.interface and not _INTERFACE.fullmatch(opts.interface):
        yield f"option interface: '{opts.interface}' is not valid; use ib0 or 10.1.0.0/16"
    if opts.replicas_per_node < 1:
        yield f"option replicas_per_node: {opts.replicas_per_node} must be 1 or more"
    if (opts.requeue or opts.resume_dir) and "no-requeue" in (opts.extra or ()):
        yield "option extra: 'no-requeue' contradicts the options requeue and resume_dir"
    for text in (*(opts.extra or ()), *(opts.srun or ())):
        match = _DIRECTIVE.fullmatch(text)
        if match is None:
            yield f"option extra or srun: '{text}' is not valid; use name or name=value"
        elif text in (opts.extra or ()) and match[1] in _RESERVED:
            yield f"option extra: '{match[1]}' cannot be set; {_RESERVED[match[1]]}"


def directive(text: str) -> tuple[str, str | None]:
    """Split ``name``, ``name=value`` or ``--name=value`` into name and value.

    The value of a flag is None.

    Raises:
        RequestError: The text is not a directive.
    """
    match = _DIRECTIVE.fullmatch(text)
    if match is None:
        raise RequestError(f"directive '{text}' is not valid; use name or name=value")
    return match[1], match[2]


def excluded(name: str, value: str | None) -> set[str]:
    """Return the directives that a directive excludes, with its own name.

    >>> sorted(excluded("mem-per-cpu", "1G")), excluded("gres", "nvme:1")
    (['mem', 'mem-per-cpu', 'mem-per-gpu'], {'gres'})
    """
    if name == "gres" and "gpu" not in (value or ""):
        return {name}
    return {name}.union(*(group for group in _EXCLUSIVE if name in group))


def overridden_variables(directives: Mapping[str, str | None]) -> dict[str, None]:
    """Return the variables of sbatch that would replace or contradict given directives.

    sbatch ranks its variables above the directives of a script. The value None removes a variable.
    """
    names = {other for item in directives.items() for other in excluded(*item)}
    words = (_VARIABLES.get(name, name.replace("-", "_").upper()) for name in sorted(names))
    return dict.fromkeys(f"SBATCH_{word}" for word in words)
