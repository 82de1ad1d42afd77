"""The scheduler class for Grid Engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchx_kit.batch.request import mount_problems
from torchx_kit.batch.scheduler import BatchScheduler
from torchx_sched_sge.options import SgeOpts, option_problems
from torchx_sched_sge.system import Sge
from torchx_specs.model.app import AppDef
from torchx_specs.schedulers.features import No


class SgeScheduler(BatchScheduler[SgeOpts]):
    """A scheduler that runs apps as array jobs of Grid Engine, by Grid Engine's commands.

    Each role is a job, named ``<app id>-<role>``, and its replicas are the job's tasks. When a
    replica has failed and has no retries left, the other replicas of the app end themselves.

    The logs are in ``job_dir`` (default: the current directory). The app's record, in which the
    replicas report how they ended, is in the same directory. The arguments of the constructor are
    those of :class:`~torchx_kit.batch.scheduler.BatchScheduler`.
    """

    system_type = Sge
    features = replace(
        BatchScheduler.features,
        dependencies=No("Grid Engine waits for the end of a job, whatever its exit code is"),
    )

    def _request_problems(self, app: AppDef, cfg: SgeOpts) -> Iterable[str]:
        yield from option_problems(cfg)
        yield from mount_problems(app, cfg)


create_scheduler = SgeScheduler.create
