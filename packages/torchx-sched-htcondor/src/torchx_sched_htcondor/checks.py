"""Checks of HTCondor's commands and of the pool, for ``torchx doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchx_kit.batch.errors import BatchError
from torchx_kit.checks import check_commands, error, ok, query_seconds, warning
from torchx_sched_htcondor.system import HTCondor

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

_COMMANDS = ("condor_submit", "condor_q", "condor_rm", "condor_history", "condor_release")
_SETTINGS = "run torchx on an access point of the pool, and set CONDOR_CONFIG if needed"


def check_pool(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Check HTCondor's commands, the queue, and the machines of the pool.

    Args:
        cfg: The scheduler's options, which are not used.
    """
    return check_commands("HTCondor", _COMMANDS, _SETTINGS, _check_answers)


def _check_answers() -> Iterator[CheckResult]:
    """Check that the queue answers, accepts jobs of this user, and that the pool has machines."""
    condor = HTCondor(timeout=query_seconds(), patience=0)
    try:
        version = condor.run("condor_version").split("\n")[0].strip("$ ")
        condor.run("condor_q", "-totals")
        machines = condor.run("condor_status", "-af", "Machine").split()
    except BatchError as e:
        yield error(e, f"{_SETTINGS}; ask the pool's administrators if the daemons are down")
        return
    if not machines:
        yield error("the pool has no machine", "ask the pool's administrators to add one")
        return
    yield ok(f"{version} answers; machines: {len(set(machines))}")
    if condor.host.user() == "root":
        yield warning("HTCondor accepts no jobs of root", "run torchx as another user")
