"""Register the scheduler ``slurm`` and its checks."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the scheduler."""
    yield SchedulerPlugin(
        "slurm",
        "torchx_sched_slurm.scheduler:create_scheduler",
        summary="Slurm clusters, by sbatch, squeue, scancel and sacct",
    )


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of the cluster, for ``torchx doctor``."""
    yield CheckPlugin("slurm:cluster", "torchx_sched_slurm.checks:check_cluster")
    yield CheckPlugin("slurm:configuration", "torchx_sched_slurm.checks:check_configuration")
