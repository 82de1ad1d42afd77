"""Checks of LSF's commands and of the cluster, for ``torchx doctor``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchx_kit.batch.errors import BatchError
from torchx_kit.checks import check_commands, describe_missing, error, ok, query_seconds, warning
from torchx_sched_lsf.system import Lsf

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

_COMMANDS = ("lsid", "bsub", "bjobs", "bkill", "bqueues")
_PROFILE = "run torchx on a host of the cluster, and source LSF's profile (. PATH/profile.lsf)"


def check_cluster(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Check that LSF's commands exist, LSF answers, and the queues are open.

    Args:
        cfg: The scheduler's options; without ``lsf_queue``, all queues are checked.
    """
    queue = cfg.get("lsf_queue")
    return check_commands("LSF", _COMMANDS, _PROFILE, lambda: _check_answers(queue))


def _check_answers(queue: object) -> Iterator[CheckResult]:
    """Yield whether LSF answers, and the queues are open; ``queue`` is the option ``lsf_queue``."""
    lsf = Lsf(timeout=query_seconds(), patience=0)
    try:
        yield ok(_identity(lsf.run("lsid")))
        rows = lsf.run("bqueues", "-w")
    except BatchError as e:
        yield error(e, "run 'lsid'; ask the cluster's administrators if LSF is down")
        return
    yield from _check_queues(rows, queue)


def _identity(text: str) -> str:
    """Return the version, the cluster and the master in the output of ``lsid``, on one line."""
    version = next((line.strip() for line in text.splitlines() if line.strip()), "LSF")
    cluster = re.search(r"My cluster name is (\S+)", text)
    master = re.search(r"My master name is (\S+)", text)
    parts = [version.partition(",")[0]]
    parts += [f"cluster {cluster[1]}"] if cluster else []
    parts += [f"master host {master[1]}"] if master else []
    return ", ".join(parts)


def _check_queues(rows: str, wanted: object) -> Iterator[CheckResult]:
    """Yield the state of the queues.

    Args:
        rows: Output of ``bqueues -w``: name, priority and status are the first columns.
        wanted: The queue in the options, or None.
    """
    fields = [line.split() for line in rows.splitlines()[1:]]
    states = {row[0]: row[2] for row in fields if len(row) > 2}
    if wanted and str(wanted) not in states:
        yield describe_missing("queue", str(wanted), states, "lsf_queue")
        return
    names = [str(wanted)] if wanted else list(states)
    if not any(states[name] == "Open:Active" for name in names):
        shown = ", ".join(f"{name} ({states[name]})" for name in names)
        yield warning(f"no queue is open and active: {shown}", "run 'bqueues -l', or wait")
        return
    yield ok(f"queues: {', '.join(states)}")
