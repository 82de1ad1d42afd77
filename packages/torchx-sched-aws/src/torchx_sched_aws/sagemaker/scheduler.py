"""``aws_sagemaker``: apps of one role as training jobs of Amazon SageMaker.

Requests are made by boto3 alone; the SageMaker SDK is not needed. The role's replicas are the job's
instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.client import Clients
from torchx_sched_aws.cloudwatch import SETTLE
from torchx_sched_aws.sagemaker import jobs
from torchx_sched_aws.sagemaker.describe import describe
from torchx_sched_aws.sagemaker.logs import TrainingLog
from torchx_sched_aws.sagemaker.options import AWSSageMakerOpts as AWSSageMakerOpts
from torchx_sched_aws.sagemaker.request import AWSSageMakerJob as AWSSageMakerJob
from torchx_sched_aws.sagemaker.request import format_request, make_request
from torchx_sched_aws.sagemaker.states import JOB_STATE as JOB_STATE
from torchx_sched_aws.sagemaker.submit import create
from torchx_specs.model.app import AppDef
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse


def create_scheduler(session_name: str, **kwargs: Any) -> AWSSageMakerScheduler:
    """Returns a scheduler; parameters of other schedulers are ignored."""
    return AWSSageMakerScheduler(session_name)


class AWSSageMakerScheduler(AwsScheduler[AWSSageMakerOpts]):
    """Runs apps as training jobs of SageMaker.

    .. code-block:: sh

        torchx run -s aws_sagemaker -cfg role=arn:aws:iam::123456789012:role/Trainer \\
            -cfg instance_type=ml.p4d.24xlarge dist.ddp -j 2x8 --script train.py

    ``macros.rank0_env`` is a variable with the host name of the first instance.

    Args:
        session_name: who submits
        client: boto3's client of SageMaker to use instead of a new one
        docker_client: kept for older code
        log_client: boto3's client of CloudWatch Logs to use instead of a new one
        log_settle: how long after the end of a job its logs may grow, in seconds
    """

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        docker_client: Any = None,
        *,
        log_client: Any = None,
        log_settle: float = SETTLE,
    ) -> None:
        clients = Clients({"sagemaker": client, "logs": log_client})
        super().__init__("aws_sagemaker", session_name, clients, log_settle)
        self._looks: CoalescingCache[dict[str, Any]] = CoalescingCache()

    @property
    def _client(self) -> Any:
        return self._clients.client("sagemaker")

    # -- the request

    def _submit_dryrun(self, app: AppDef, cfg: AWSSageMakerOpts) -> AppDryRunInfo[AWSSageMakerJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    def _submit_request(self, request: AWSSageMakerJob) -> str:
        create(self._clients, request)
        return request.job_name

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what SageMaker knows of an app, None if nothing; ``metadata`` has the job's way
        through its secondary statuses.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        job = jobs.find(self._clients, app_id)
        return None if job is None else describe(app_id, job)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns the training jobs of the last two weeks, whoever created them.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        return jobs.list_jobs(self._clients, self.session_name)

    def _cancel_existing(self, app_id: str) -> None:
        jobs.stop(self._clients, app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Stops a job, waits until it has stopped, and deletes it (with a boto3 that can)."""
        jobs.delete(self._clients, app_id)

    def _log(self, app_id: str, role_name: str, k: int) -> TrainingLog | None:
        job = self._looks.get(app_id, lambda _: jobs.find(self._clients, app_id))
        if job is None:
            return None
        return TrainingLog(self._clients, self._looks, app_id, job, role_name, k)
