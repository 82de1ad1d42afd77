"""``aws_sagemaker``: runs apps of one role as training jobs of Amazon SageMaker.

Each replica is an instance of the job. Requests are made with boto3; the SageMaker SDK is not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.cloudwatch import LOG_DELAY
from torchx_sched_aws.sagemaker.jobs import TrainingJobs
from torchx_sched_aws.sagemaker.logs import TrainingLog
from torchx_sched_aws.sagemaker.options import RULES, AWSSageMakerOpts, request_problems
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob, make_request
from torchx_specs.model.app import AppDef
from torchx_specs.schedulers.features import No


def create_scheduler(session_name: str, **kwargs: Any) -> AWSSageMakerScheduler:
    """Return a scheduler; parameters of other schedulers are ignored."""
    return AWSSageMakerScheduler(session_name)


class AWSSageMakerScheduler(AwsScheduler[AWSSageMakerOpts]):
    r"""Runs apps as training jobs of SageMaker.

    .. code-block:: sh

        torchx run -s aws_sagemaker -cfg role=arn:aws:iam::123456789012:role/Trainer \
            -cfg instance_type=ml.p4d.24xlarge dist.ddp -j 2x8 --script train.py

    ``macros.rank0_env`` names a variable with the host name of the first instance.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of SageMaker to use instead of a new one.
        docker_client: Unused; kept for code written for upstream's TorchX.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        log_delay: How long the last log lines may take to arrive after a job's end, in seconds.
    """

    name = "aws_sagemaker"
    jobs = TrainingJobs
    _jobs: TrainingJobs
    request_rules = RULES
    features = replace(
        AwsScheduler.features,
        retries=No("SageMaker starts a job again after its own errors, not after the program's"),
        restart_count=No("SageMaker starts a job again after its own errors only"),
        requeue=No("SageMaker starts a job again after a Spot interruption or its own errors only"),
        several_roles=No("a training job has one command for all of its instances"),
        secrets=No("the environment variables of a training job are plain text"),
        dependencies=No("a training job waits for no other job"),
        arrays=No("a request starts one training job"),
    )

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        docker_client: Any = None,
        *,
        log_client: Any = None,
        log_delay: float = LOG_DELAY,
    ) -> None:
        super().__init__(session_name, client, log_client, log_delay=log_delay)

    def _request_problems(self, app: AppDef, cfg: AWSSageMakerOpts) -> Iterable[str]:
        return request_problems(app, cfg)

    def _make_request(self, app: AppDef, cfg: AWSSageMakerOpts) -> AWSSageMakerJob:
        return make_request(app, cfg)

    def _log(self, app_id: str, role_name: str, k: int) -> TrainingLog | None:
        job = self._jobs.find(app_id)
        return None if job is None else TrainingLog(self._clients, self._jobs, job, role_name, k)
