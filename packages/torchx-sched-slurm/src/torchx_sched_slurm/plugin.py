"""Registers the scheduler ``slurm``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler."""
    yield SchedulerPlugin(
        "slurm",
        "torchx_sched_slurm.scheduler:create_scheduler",
        summary="Slurm clusters, by sbatch, squeue, scancel and sacct",
    )
