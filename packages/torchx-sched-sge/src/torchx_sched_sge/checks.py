"""Checks of Grid Engine's commands and of the cluster, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchx_kit.batch.errors import BatchError
from torchx_kit.checks import check_commands, describe_missing, error, ok, query_seconds, warning
from torchx_sched_sge.options import SgeOpts
from torchx_sched_sge.system import Sge

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

_COMMANDS = ("qsub", "qstat", "qdel", "qconf", "qacct")
_SETTINGS = "run torchx on a submit host, and source Grid Engine's settings.sh"


def check_cluster(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Check Grid Engine's commands, the qmaster, the queue and the parallel environment.

    Args:
        cfg: The scheduler's options, of which ``queue`` and ``pe`` are checked.
    """
    return check_commands("Grid Engine", _COMMANDS, _SETTINGS, lambda: _check_answers(cfg))


def _check_answers(cfg: Mapping[str, CfgVal]) -> Iterator[CheckResult]:
    """Check that the qmaster answers, and has the queue and the parallel environment."""
    sge = Sge(timeout=query_seconds(), patience=0)
    try:
        queues = sge.run("qconf", "-sql").split()
    except BatchError as e:
        yield error(e, f"{_SETTINGS}; ask the cluster's administrators if the qmaster is down")
        return
    # The version is the first line of the help text. The exit code of `qstat -help` is not used,
    # because it differs between releases.
    yield ok(f"Grid Engine {_version(sge)} answers; queues: {', '.join(queues) or 'none'}")
    wanted = cfg.get("queue")
    if not queues:
        yield error("the cluster has no queue", "ask the cluster's administrators to add one")
    elif wanted and str(wanted).partition("@")[0] not in queues:
        yield describe_missing("queue", str(wanted), queues, "queue")
    yield from _check_environment(sge, str(cfg.get("pe") or SgeOpts.pe))


def _version(sge: Sge) -> str:
    result = sge.host.run(("qstat", "-help"), timeout=query_seconds())
    lines = (result.stdout or result.stderr).splitlines()
    return lines[0].strip() if lines else ""


def _check_environment(sge: Sge, name: str) -> Iterator[CheckResult]:
    """Check that the parallel environment exists and has the allocation rule ``$pe_slots``.

    Args:
        sge: The client.
        name: The parallel environment in the option ``pe``.
    """
    needed = "jobs with more than one CPU for each replica need it"
    remedy = "set the option pe to another one in .torchxconfig, or ask the administrators"
    try:
        settings = dict(
            line.split(None, 1)
            for line in sge.run("qconf", "-sp", name).splitlines()
            if " " in line
        )
    except BatchError:
        yield warning(f"there is no parallel environment '{name}'; {needed}", remedy)
        return
    rule = settings.get("allocation_rule", "").strip()
    if rule != "$pe_slots":
        yield warning(
            f"the allocation rule of parallel environment '{name}' is {rule}, not $pe_slots;"
            f" {needed}",
            remedy,
        )
        return
    yield ok(f"parallel environment {name}: $pe_slots")
