"""Registers the scheduler ``lsf``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler."""
    yield SchedulerPlugin(
        "lsf",
        "torchx_sched_lsf.scheduler:create_scheduler",
        summary="IBM Spectrum LSF and batch systems that have its commands",
    )
