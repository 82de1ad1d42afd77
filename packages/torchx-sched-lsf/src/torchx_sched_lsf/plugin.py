"""Register the scheduler ``lsf``, and the check of its cluster."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler."""
    yield SchedulerPlugin(
        "lsf",
        "torchx_sched_lsf.scheduler:create_scheduler",
        summary="IBM Spectrum LSF and batch systems that have its commands",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the check of the cluster, for ``torchx doctor``."""
    yield CheckPlugin("lsf:cluster", "torchx_sched_lsf.checks:check_cluster")
