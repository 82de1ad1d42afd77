"""Checks of Slurm's commands, controller and configuration, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchx_kit.batch.errors import BatchError, UnreachableError
from torchx_kit.checks import check_commands, describe_missing, error, ok, query_seconds, warning
from torchx_sched_slurm.system import Slurm

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
_LOGIN_NODE = "run torchx on a login node of the cluster, or install Slurm's client commands"
_CONTROLLER = "run 'scontrol ping'; ask the cluster's administrators if the controller is down"


def check_cluster(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Check that the commands exist, the controller answers, and nodes can run jobs.

    Args:
        cfg: The scheduler's options; without ``partition``, all partitions are checked.
    """
    partition = cfg.get("partition")
    return check_commands("Slurm", _COMMANDS, _LOGIN_NODE, lambda: _check_answers(partition))


def _check_answers(partition: object) -> Iterator[CheckResult]:
    """Check that the controller answers, and nodes of the option ``partition`` can run jobs."""
    slurm = Slurm(timeout=query_seconds(), patience=0)
    try:
        # Use another client: `sinfo --version` succeeds without the controller, so its success
        # must not count as an answer of the controller.
        version = Slurm(timeout=query_seconds(), patience=0).run("sinfo", "--version")
        yield ok(version.strip())
        rows = slurm.run_idempotent("sinfo", "--noheader", "-o", "%R|%a|%D|%T")
    except UnreachableError as e:
        yield error(e, _CONTROLLER)
        return
    except BatchError as e:
        yield error(e, "run 'sinfo', and correct its problem first")
        return
    yield from _check_partitions(rows, partition)


def _check_partitions(rows: str, wanted: object) -> Iterator[CheckResult]:
    """Yield the state of the partitions.

    Args:
        rows: Output of sinfo: partition, availability, number of nodes and their state.
        wanted: The option ``partition``: one name, or several with commas; None if it is not set.
    """
    usable: dict[str, int] = {}
    for line in rows.splitlines():
        name, available, nodes, state = line.strip().split("|")
        is_usable = available == "up" and not state.startswith(("down", "drain", "fail", "unk"))
        usable[name] = usable.get(name, 0) + (int(nodes) if is_usable and state[-1:] != "*" else 0)
    names = str(wanted).split(",") if wanted else list(usable)
    missing = [name for name in names if name not in usable]
    if missing:
        yield describe_missing("partition", missing[0], usable, "partition")
        return
    if not any(usable[name] for name in names):
        yield warning(
            f"no node of partition {', '.join(names)} can run jobs now",
            "run 'sinfo -R', which shows why nodes are down or drained",
        )
        return
    counts = ", ".join(f"{name} ({count} usable nodes)" for name, count in usable.items())
    yield ok(f"partitions: {counts}")


def check_configuration(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Check whether accounting is on, and whether Slurm ends all processes of a job with the job.

    Args:
        cfg: The scheduler's options, which this check ignores.
    """
    slurm = Slurm(timeout=query_seconds(), patience=0)
    try:
        settings = _settings(slurm.run("scontrol", "show", "config"))
    except BatchError:
        return  # check_cluster reports missing commands, and a controller that does not answer
    track = settings.get("ProctrackType", "")
    if track.endswith("cgroup"):
        yield ok("Slurm tracks the processes of a job by cgroup")
    else:
        yield warning(
            f"Slurm tracks the processes of a job by {track.removeprefix('proctrack/')}, so a"
            " process that leaves its process group survives the job",
            "ask for ProctrackType=proctrack/cgroup in slurm.conf",
        )
    storage = settings.get("AccountingStorageType", "")
    if not storage or storage.endswith("none") or storage == "(null)":
        yield warning(
            "accounting is off: only TorchX's own records tell how an old job ended"
            f" (Slurm forgets ended jobs after {settings.get('MinJobAge', 'MinJobAge')})",
            "ask for slurmdbd if you need 'torchx status' for jobs of other users",
        )
        return
    try:
        slurm.run("sacct", "--noheader", "--allocations", "--starttime=now")
    except BatchError as e:
        yield warning(e, "ask the cluster's administrators whether slurmdbd is down")
    else:
        yield ok("accounting answers")


def _settings(text: str) -> dict[str, str]:
    """Return the settings in the output of ``scontrol show config``."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
