"""Register the scheduler ``htcondor``, and the check of its pool."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler."""
    yield SchedulerPlugin(
        "htcondor",
        "torchx_sched_htcondor.scheduler:create_scheduler",
        summary="HTCondor, with a file system that all machines share",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the check of the pool, for ``torchx doctor``."""
    yield CheckPlugin("htcondor:pool", "torchx_sched_htcondor.checks:check_pool")
