"""``aws_sagemaker``: apps of one role as training jobs of Amazon SageMaker.

Requests are made by boto3 alone; the SageMaker SDK is not needed. The role's replicas are the job's
instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_sched_aws.clients import Clients
from torchx_sched_aws.cloudwatch import SETTLE, check_streams
from torchx_sched_aws.sagemaker_options import AWSSageMakerOpts as AWSSageMakerOpts
from torchx_sched_aws.sagemaker_request import AWSSageMakerJob as AWSSageMakerJob
from torchx_sched_aws.sagemaker_request import format_request, make_request
from torchx_sched_aws.sagemaker_states import JOB_STATE as JOB_STATE
from torchx_specs.app import AppDef
from torchx_specs.dryrun import AppDryRunInfo
from torchx_specs.errors import UnknownAppException
from torchx_specs.run_options import CfgVal
from torchx_specs.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
    filter_regex,
)
from torchx_specs.workspace.builder import BuilderWorkspaceMixin, Product

if TYPE_CHECKING:
    from datetime import datetime


def create_scheduler(session_name: str, **kwargs: Any) -> AWSSageMakerScheduler:
    """Returns a scheduler; parameters of other schedulers are ignored."""
    return AWSSageMakerScheduler(session_name)


class AWSSageMakerScheduler(BuilderWorkspaceMixin, Scheduler[AWSSageMakerOpts]):
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

    default_workspace_type: ClassVar[str] = "docker"
    workspace_products: ClassVar[frozenset[Product]] = frozenset({"image"})

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        docker_client: Any = None,
        *,
        log_client: Any = None,
        log_settle: float = SETTLE,
    ) -> None:
        super().__init__("aws_sagemaker", session_name)
        self._clients = Clients({"sagemaker": client, "logs": log_client})
        self._log_settle = log_settle

    @property
    def _client(self) -> Any:
        return self._clients.client("sagemaker")

    def close(self) -> None:
        """Closes the connections; jobs run on."""
        self._clients.close()

    # -- the request

    def _submit_dryrun(self, app: AppDef, cfg: AWSSageMakerOpts) -> AppDryRunInfo[AWSSageMakerJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    def _validate(self, app: AppDef, scheduler: str, cfg: AWSSageMakerOpts | None = None) -> None:
        """Nothing more than the dry run checks: the instance type says what a job has."""

    # -- submitting

    def schedule(self, dryrun_info: AppDryRunInfo[AWSSageMakerJob]) -> str:
        """Builds what the workspace still needs, and creates the job.

        Raises:
            RequestError: SageMaker finds something wrong with the request
            AwsError: AWS refuses, or does not answer
            WorkspaceError: the workspace cannot be built
        """
        from torchx_sched_aws.sagemaker_jobs import create

        self.build_pending(dryrun_info)
        create(self._clients, dryrun_info.request)
        return dryrun_info.request.job_name

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what SageMaker knows of an app, None if nothing; ``metadata`` has the job's way
        through its secondary statuses.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        from torchx_sched_aws.sagemaker_jobs import describe, find

        job = find(self._clients, app_id)
        return None if job is None else describe(app_id, job)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns the training jobs of the last two weeks, whoever created them.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        from torchx_sched_aws.sagemaker_jobs import list_jobs

        return list_jobs(self._clients, self.session_name)

    def _cancel_existing(self, app_id: str) -> None:
        from torchx_sched_aws.sagemaker_jobs import stop

        stop(self._clients, app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Stops a job, waits until it has stopped, and deletes it (with a boto3 that can)."""
        from torchx_sched_aws.sagemaker_jobs import delete

        delete(self._clients, app_id)

    # -- logs

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Returns the lines of an instance, those of all its starts one after the other.

        CloudWatch keeps both outputs together, so ``streams`` may only be both.

        Raises:
            UnknownAppException: no such app
            RequestError: no such role or replica, or one output by itself
            AwsError: AWS refuses, or is silent for long
        """
        from torchx_sched_aws.sagemaker_jobs import find
        from torchx_sched_aws.sagemaker_logs import ReplicaLog

        check_streams("aws_sagemaker", streams)
        job = find(self._clients, app_id)
        if job is None:
            raise UnknownAppException(f"aws_sagemaker://{self.session_name}/{app_id}")
        log = ReplicaLog(self._clients, app_id, job, role_name, k, since, until, self._log_settle)
        lines: Iterable[str] = log.lines(follow=should_tail)
        return filter_regex(regex, lines) if regex else lines
