"""``aws_batch``: runs apps as jobs of AWS Batch.

An app of one replica that needs no particular instance type is a job of one container. Any other
app is a multi-node parallel job, in which each replica is a node and each role is a group of nodes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.batch.arrays import BatchArrays, child_index
from torchx_sched_aws.batch.describe import describe
from torchx_sched_aws.batch.jobs import TAG_DELETED, Jobs, is_own
from torchx_sched_aws.batch.logs import BatchLog
from torchx_sched_aws.batch.options import RULES, AWSBatchOpts, queue_name, request_problems
from torchx_sched_aws.batch.request import BatchJob, make_request
from torchx_sched_aws.batch.states import CANCELLED, DELETED, job_state
from torchx_sched_aws.batch.submit import submit
from torchx_sched_aws.client import AccessDeniedError, AwsError, aws_errors
from torchx_sched_aws.cloudwatch import LOG_DELAY
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.features import No

# Pauses between attempts to end a child of an array job that Batch has not created yet, in seconds.
_CREATION_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)

logger = logging.getLogger(__name__)


def create_scheduler(
    session_name: str,
    client: Any = None,
    log_client: Any = None,
    docker_client: Any = None,
    **kwargs: Any,
) -> AWSBatchScheduler:
    """Return a scheduler.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of Batch to use instead of a new one.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        docker_client: Unused; kept for code written for upstream's TorchX.
        **kwargs: Parameters of other schedulers, which are ignored.
    """
    return AWSBatchScheduler(session_name, client, log_client, docker_client)


class AWSBatchScheduler(AwsScheduler[AWSBatchOpts]):
    """Runs apps on AWS Batch.

    .. code-block:: sh

        torchx run -s aws_batch -cfg queue=gpu dist.ddp -h aws_p4d.24xlarge -j 2x8 --script train.py

    ``macros.rank0_env`` names the variable in which Batch gives the first node's address to all
    other nodes. Batch does not set it on the first node itself.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of Batch to use instead of a new one.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        docker_client: Unused; kept for code written for upstream's TorchX.
        log_delay: How long the last log lines may take to arrive after a replica's end, in seconds.
    """

    name = "aws_batch"
    service = "batch"
    job_term = "job"
    end_command = "aws batch terminate-job --job-id {jobId} --reason TEXT"
    features = replace(
        AwsScheduler.features,
        secrets=True,
        dependencies=True,
        arrays=True,
        array_limit=No("an array job of Batch has no limit of running children"),
    )
    request_rules = RULES

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        log_client: Any = None,
        docker_client: Any = None,
        *,
        log_delay: float = LOG_DELAY,
    ) -> None:
        super().__init__(session_name, client, log_client, log_delay=log_delay)
        self._jobs = Jobs(self._clients)

    def _request_problems(self, app: AppDef, cfg: AWSBatchOpts) -> Iterable[str]:
        return request_problems(app, cfg)

    def _make_request(self, app: AppDef, cfg: AWSBatchOpts) -> BatchJob:
        return make_request(app, cfg)

    def _submit_request(self, request: BatchJob) -> str:
        self._jobs.remember_id(request.app_id, submit(self._clients, request))
        return request.app_id

    def _find(self, app_id: str) -> dict[str, Any] | None:
        return self._jobs.find(app_id)

    def _is_own(self, job: Mapping[str, Any]) -> bool:
        return is_own(job)

    def _describe(self, app_id: str, job: dict[str, Any]) -> DescribeAppResponse:
        return describe(app_id, job, self._jobs.nodes(job))

    @property
    def app_arrays(self) -> BatchArrays:
        """Submits many apps as children of array jobs."""
        return BatchArrays(self)

    def with_dependency(
        self, cfg: Mapping[str, CfgVal], app_id: str, outcome: str
    ) -> Mapping[str, CfgVal] | None:
        """Return the options with an app's job added to ``depends_on``; None if Batch cannot do so.

        Batch supports only the outcome ``ok``, and no dependency on a child of an array job or on a
        missing app.

        Raises:
            AwsError: Batch cannot be queried.
        """
        job = self._jobs.find(app_id) if outcome == "ok" else None
        if job is None or child_index(job) is not None:
            return None
        given = cfg.get("depends_on")
        others = given if isinstance(given, list) else []
        return {**cfg, "depends_on": [*others, str(job["jobId"])]}

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the jobs that TorchX submitted.

        Batch keeps jobs for a week or longer after their end.

        Args:
            cfg: The options; with ``queue``, list only the jobs of that queue.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        queue = (cfg or {}).get("queue")
        return self._jobs.list(self.session_name, [queue_name(str(queue))] if queue else ())

    def _cancel_job(self, job: Mapping[str, Any]) -> None:
        self._end(job, CANCELLED)

    def delete(self, app_id: str) -> None:
        """End an app's job and tag the job as deleted. A missing app is not an error.

        Deregister the job definition if no other job uses it. Batch itself removes jobs only days
        after their end.
        """
        job = self._find_own(app_id, "delete")
        if job is None:
            return
        self._end(job, DELETED)
        if child_index(job) is not None:
            job = self._jobs.mark_child_as_deleted(job)
            self._jobs.hide(app_id)
            if job is None:  # the array job has other children
                return
        batch = self._clients.client("batch")
        with aws_errors(f"mark {app_id} as deleted"):
            batch.tag_resource(resourceArn=job["jobArn"], tags={TAG_DELETED: "true"})
        self._jobs.hide(app_id)
        definition = str(job.get("jobDefinition") or "")
        try:
            if not definition or self._jobs.is_definition_used(definition, str(job["jobId"])):
                return
        except AccessDeniedError as e:
            logger.debug("keeping the job definition %s: %s", definition, e)
            return
        try:
            with aws_errors(f"deregister the job definition {definition}"):
                batch.deregister_job_definition(jobDefinition=definition)
        except AwsError as e:
            # ClientException: the definition was deregistered before.
            if e.code != "ClientException":
                raise

    def _end(self, job: Mapping[str, Any], reason: str) -> None:
        if is_terminal(job_state(job)):
            return
        pauses = iter(_CREATION_PAUSES if child_index(job) is not None else ())
        while True:
            try:
                # TerminateJob also cancels a job that has not started.
                with aws_errors(f"end the job {job['jobName']}"):
                    self._clients.client("batch").terminate_job(jobId=job["jobId"], reason=reason)
                return
            except AwsError as e:
                pause = next(pauses, None)
                if pause is None or e.code != "ClientException":
                    raise
                time.sleep(pause)

    def _log(self, app_id: str, role_name: str, k: int) -> BatchLog | None:
        job = self._jobs.find(app_id)
        return None if job is None else BatchLog(self._clients, self._jobs, job, role_name, k)
