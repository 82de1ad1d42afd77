"""Registers the schedulers ``aws_batch`` and ``aws_sagemaker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl


@hookimpl
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield the schedulers."""
    yield SchedulerPlugin(
        "aws_batch",
        "torchx_sched_aws.batch.scheduler:create_scheduler",
        summary="AWS Batch: jobs of one node or several, logs from CloudWatch",
    )
    yield SchedulerPlugin(
        "aws_sagemaker",
        "torchx_sched_aws.sagemaker.scheduler:create_scheduler",
        summary="Amazon SageMaker: training jobs",
    )
