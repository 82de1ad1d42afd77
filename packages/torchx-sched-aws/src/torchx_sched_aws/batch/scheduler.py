"""``aws_batch``: apps as jobs of AWS Batch.

An app of one replica is a job of one container. Any other one is a multi-node parallel job: each
replica is a node, each role a group of nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from torchx_kit.devices import get_device_mounts as get_device_mounts
from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.batch.container import INSTANCE_TYPE
from torchx_sched_aws.batch.container import ResourceType as ResourceType
from torchx_sched_aws.batch.container import (
    resource_from_resource_requirements as resource_from_resource_requirements,
)
from torchx_sched_aws.batch.container import (
    resource_requirements_from_resource as resource_requirements_from_resource,
)
from torchx_sched_aws.batch.describe import DEFAULT_ROLE_NAME as DEFAULT_ROLE_NAME
from torchx_sched_aws.batch.describe import _parse_num_replicas as _parse_num_replicas
from torchx_sched_aws.batch.describe import _parse_start_and_end_idx as _parse_start_and_end_idx
from torchx_sched_aws.batch.describe import describe, job_ui_url
from torchx_sched_aws.batch.jobs import TAG_DELETED, Jobs
from torchx_sched_aws.batch.logs import BatchLog
from torchx_sched_aws.batch.options import AWSBatchOpts as AWSBatchOpts
from torchx_sched_aws.batch.options import queue_name
from torchx_sched_aws.batch.request import ENV_TORCHX_ROLE_IDX as ENV_TORCHX_ROLE_IDX
from torchx_sched_aws.batch.request import ENV_TORCHX_ROLE_NAME as ENV_TORCHX_ROLE_NAME
from torchx_sched_aws.batch.request import BatchJob as BatchJob
from torchx_sched_aws.batch.request import format_request, make_request
from torchx_sched_aws.batch.states import CANCELLED, DELETED, job_state
from torchx_sched_aws.batch.states import JOB_STATE as JOB_STATE
from torchx_sched_aws.batch.submit import submit
from torchx_sched_aws.client import AwsError, Clients, aws_errors
from torchx_sched_aws.cloudwatch import SETTLE, milliseconds
from torchx_sched_aws.tags import TAG_TORCHX_APPNAME as TAG_TORCHX_APPNAME
from torchx_sched_aws.tags import TAG_TORCHX_USER as TAG_TORCHX_USER
from torchx_sched_aws.tags import TAG_TORCHX_VER as TAG_TORCHX_VER
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.resources import Resource
from torchx_specs.model.status import is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse


def create_scheduler(
    session_name: str,
    client: Any = None,
    log_client: Any = None,
    docker_client: Any = None,
    **kwargs: Any,
) -> AWSBatchScheduler:
    """Returns a scheduler; parameters of other schedulers are ignored.

    Args:
        session_name: who submits
        client: boto3's client of Batch to use instead of a new one
        log_client: boto3's client of CloudWatch Logs to use instead of a new one
        docker_client: kept for older code
        **kwargs: ignored
    """
    return AWSBatchScheduler(session_name, client, log_client, docker_client)


class AWSBatchScheduler(AwsScheduler[AWSBatchOpts]):
    """Runs apps on AWS Batch.

    .. code-block:: sh

        torchx run -s aws_batch -cfg queue=gpu dist.ddp -h aws_p4d.24xlarge -j 2x8 --script train.py

    ``macros.rank0_env`` is the variable in which Batch gives the other nodes the address of the
    first one; on that one it is not set.

    Args:
        session_name: who submits
        client: boto3's client of Batch to use instead of a new one
        log_client: boto3's client of CloudWatch Logs to use instead of a new one
        docker_client: kept for older code
        log_settle: how long after the end of a replica its log may grow, in seconds
    """

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        log_client: Any = None,
        docker_client: Any = None,
        *,
        log_settle: float = SETTLE,
    ) -> None:
        clients = Clients({"batch": client, "logs": log_client})
        super().__init__("aws_batch", session_name, clients, log_settle)
        self._jobs = Jobs(clients)

    @property
    def _client(self) -> Any:
        return self._clients.client("batch")

    @property
    def _log_client(self) -> Any:
        return self._clients.client("logs")

    # -- the request

    def _submit_dryrun(self, app: AppDef, cfg: AWSBatchOpts) -> AppDryRunInfo[BatchJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    def _submit_request(self, request: BatchJob) -> str:
        self._jobs.remember(request.app_id, submit(self._clients, request))
        return request.app_id

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what Batch knows of an app, None if nothing.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        job = self._jobs.find(app_id)
        if job is None:
            return None
        return describe(app_id, job, self._jobs.nodes(job))

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns TorchX's jobs that Batch remembers, for a week or longer.

        Args:
            cfg: with ``queue``, only the jobs of that one

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        queue = (cfg or {}).get("queue")
        return self._jobs.list(self.session_name, [queue_name(str(queue))] if queue else ())

    def _cancel_existing(self, app_id: str) -> None:
        job = self._jobs.find(app_id)
        if job is not None:
            self._end(job, CANCELLED)

    def _delete_existing(self, app_id: str) -> None:
        """Ends an app's job and deregisters its definition.

        Batch itself forgets jobs later; until then a tag says that this one counts as deleted.
        """
        job = self._jobs.find(app_id)
        if job is None:
            return
        self._end(job, DELETED)
        batch = self._clients.client("batch")
        with aws_errors(f"mark {app_id} as deleted"):
            batch.tag_resource(resourceArn=job["jobArn"], tags={TAG_DELETED: "true"})
        self._jobs.forget(app_id)
        definition = job.get("jobDefinition")
        if definition:
            try:
                with aws_errors(f"deregister the job definition {definition}"):
                    batch.deregister_job_definition(jobDefinition=definition)
            except AwsError as e:
                if e.code != "ClientException":  # another app that shared it was deleted before
                    raise

    def _end(self, job: Mapping[str, Any], reason: str) -> None:
        # a job that has not started yet is cancelled by the same request
        if not is_terminal(job_state(job)):
            with aws_errors(f"end the job {job['jobName']}"):
                self._clients.client("batch").terminate_job(jobId=job["jobId"], reason=reason)

    def _log(self, app_id: str, role_name: str, k: int) -> BatchLog | None:
        job = self._jobs.find(app_id)
        return None if job is None else BatchLog(self._clients, self._jobs, job, role_name, k)


def instance_type_from_resource(resource: Resource) -> str | None:
    """Returns the instance type that a resource asks for, None and a warning if it names none."""
    found = resource.capabilities.get(INSTANCE_TYPE)
    if found is None:
        warnings.warn(
            f"the resource names no instance type (capability {INSTANCE_TYPE}): a job of several"
            " nodes may land on another than meant",
            stacklevel=2,
        )
    return found


def to_datetime(ms_since_epoch: int) -> datetime:
    """Returns a time of AWS as a time of UTC without a zone."""
    return datetime.fromtimestamp(ms_since_epoch / 1000, timezone.utc).replace(tzinfo=None)


def to_millis_since_epoch(ts: datetime) -> int:
    """Returns a time (of this machine, if it has no zone) as AWS writes it."""
    return milliseconds(ts)


def _job_ui_url(job_arn: str) -> str | None:
    """Returns where to look at a job of several nodes, None if ``job_arn`` is none."""
    return job_ui_url(job_arn)


def _role_to_node_properties(
    role: Role,
    start_idx: int,
    privileged: bool = False,
    job_role_arn: str | None = None,
    execution_role_arn: str | None = None,
) -> dict[str, Any]:
    """Returns a role as a node range; for older code."""
    from torchx_sched_aws.batch.request import _container

    opts = AWSBatchOpts(
        queue="q",
        privileged=privileged,
        job_role_arn=job_role_arn,
        execution_role_arn=execution_role_arn,
    )
    container, _ = _container(role, 0, start_idx, role.name, opts, overridden=False)
    kind = instance_type_from_resource(role.resource)
    if kind:
        container["instanceType"] = kind
    return {
        "targetNodes": f"{start_idx}:{start_idx + role.num_replicas - 1}",
        "container": container,
    }
