"""The scheduler class for HTCondor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchx_kit.batch.request import mount_problems
from torchx_kit.batch.scheduler import BatchScheduler
from torchx_sched_htcondor.options import HTCondorOpts, option_problems
from torchx_sched_htcondor.system import HTCondor
from torchx_specs.model.app import AppDef
from torchx_specs.schedulers.features import No


class HTCondorScheduler(BatchScheduler[HTCondorOpts]):
    """A scheduler that runs apps as jobs of HTCondor, by HTCondor's commands.

    Each role is a cluster of jobs with the batch name ``<app id>-<role>``, and each replica is one
    of its jobs. When a replica has failed and has no retries left, the other replicas of the app
    end themselves. The arguments of the constructor are those of
    :class:`~torchx_kit.batch.scheduler.BatchScheduler`.
    """

    system_type = HTCondor
    features = replace(
        BatchScheduler.features,
        dependencies=No("jobs of HTCondor wait for other jobs only in a DAG"),
    )

    def _request_problems(self, app: AppDef, cfg: HTCondorOpts) -> Iterable[str]:
        yield from option_problems(cfg)
        yield from mount_problems(app, cfg)


create_scheduler = HTCondorScheduler.create
