"""``aws_sagemaker``: runs apps of one role as training jobs of Amazon SageMaker.

Each replica is an instance of the job. Requests are made with boto3; the SageMaker SDK is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.client import Clients
from torchx_sched_aws.cloudwatch import LOG_DELAY
from torchx_sched_aws.sagemaker import jobs
from torchx_sched_aws.sagemaker.checks import RULES, request_problems
from torchx_sched_aws.sagemaker.describe import describe
from torchx_sched_aws.sagemaker.logs import TrainingLog
from torchx_sched_aws.sagemaker.options import AWSSageMakerOpts as AWSSageMakerOpts
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob as AWSSageMakerJob
from torchx_sched_aws.sagemaker.request import format_request, make_request
from torchx_sched_aws.sagemaker.states import JOB_STATE as JOB_STATE
from torchx_sched_aws.sagemaker.submit import create
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse
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

    request_rules = RULES
    features = replace(
        AwsScheduler.features,
        retries=No("SageMaker starts a job again after its own errors, not after the program's"),
        restart_count=No("SageMaker starts a job again after its own errors only"),
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
        clients = Clients({"sagemaker": client, "logs": log_client})
        super().__init__("aws_sagemaker", session_name, clients, log_delay)
        self._job_cache: CoalescingCache[dict[str, Any]] = CoalescingCache()

    @property
    def _client(self) -> Any:
        return self._clients.client("sagemaker")

    def _request_problems(self, app: AppDef, cfg: AWSSageMakerOpts) -> Iterable[str]:
        return request_problems(app, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: AWSSageMakerOpts) -> AppDryRunInfo[AWSSageMakerJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    def _submit_request(self, request: AWSSageMakerJob) -> str:
        create(self._clients, request)
        return request.job_name

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if it does not exist.

        The ``metadata`` of the description lists the job's secondary statuses in order.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        job = jobs.find(self._clients, app_id)
        return None if job is None else describe(app_id, job)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the training jobs that TorchX submitted in the last two weeks.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        return jobs.list_jobs(self._clients, self.session_name)

    def _cancel_existing(self, app_id: str) -> None:
        job = jobs.find(self._clients, app_id)
        if job is not None:
            jobs.check_own(self._clients, job, "cancel")
            jobs.stop(self._clients, app_id)

    def delete(self, app_id: str) -> None:
        """Stop a job, wait until it has stopped, and delete it if boto3's version supports that."""
        jobs.delete(self._clients, app_id)

    def _log(self, app_id: str, role_name: str, k: int) -> TrainingLog | None:
        job = self._job_cache.get(app_id, lambda _: jobs.find(self._clients, app_id))
        if job is None:
            return None
        return TrainingLog(self._clients, self._job_cache, app_id, job, role_name, k)
