"""Registers ``slurm``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Gives the scheduler."""
    yield SchedulerPlugin(
        "slurm",
        "torchx_sched_slurm.scheduler:create_scheduler",
        summary="Slurm, through sbatch, squeue and, where there is accounting, sacct",
    )
