"""Registers the scheduler ``local_cwd``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler that runs apps on this machine."""
    yield SchedulerPlugin(
        "local_cwd",
        "torchx_sched_local.scheduler:create_scheduler",
        summary="Processes on this machine, in the current directory",
    )
