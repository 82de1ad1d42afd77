"""Register the scheduler ``sge``, and the check of its cluster."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler."""
    yield SchedulerPlugin(
        "sge",
        "torchx_sched_sge.scheduler:create_scheduler",
        summary="Grid Engine (Son of Grid Engine, and systems that have its commands)",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the check of the cluster, for ``torchx doctor``."""
    yield CheckPlugin("sge:cluster", "torchx_sched_sge.checks:check_cluster")
