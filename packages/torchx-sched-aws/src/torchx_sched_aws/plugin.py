"""Register the schedulers ``aws_batch`` and ``aws_sagemaker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CheckPlugin, SchedulerPlugin, hookimpl


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


@hookimpl
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield the checks of credentials and services, for ``torchx doctor``."""
    yield CheckPlugin("aws_batch:credentials", "torchx_sched_aws.checks:check_credentials")
    yield CheckPlugin("aws_batch:queues", "torchx_sched_aws.checks:check_batch")
    yield CheckPlugin("aws_sagemaker:credentials", "torchx_sched_aws.checks:check_credentials")
    yield CheckPlugin("aws_sagemaker:access", "torchx_sched_aws.checks:check_sagemaker")
