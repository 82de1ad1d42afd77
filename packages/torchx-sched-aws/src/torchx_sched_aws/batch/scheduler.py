"""``aws_batch``: runs apps as jobs of AWS Batch.

An app of one replica that needs no particular instance type is a job of one container. Any other
app is a multi-node parallel job, in which each replica is a node and each role is a group of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.batch.arrays import BatchArrays, child_index
from torchx_sched_aws.batch.attempts import requeue_problems
from torchx_sched_aws.batch.jobs import Jobs
from torchx_sched_aws.batch.logs import BatchLog
from torchx_sched_aws.batch.options import RULES, AWSBatchOpts, request_problems
from torchx_sched_aws.batch.request import BatchJob, make_request
from torchx_sched_aws.cloudwatch import LOG_DELAY
from torchx_specs.model.app import AppDef
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.features import No


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
    jobs = Jobs
    _jobs: Jobs
    features = replace(
        AwsScheduler.features,
        secrets=True,
        requeue=True,
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

    def _request_problems(self, app: AppDef, cfg: AWSBatchOpts) -> Iterable[str]:
        return (*request_problems(app, cfg), *requeue_problems(app, cfg))

    def _make_request(self, app: AppDef, cfg: AWSBatchOpts) -> BatchJob:
        return make_request(app, cfg)

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

    def _log(self, app_id: str, role_name: str, k: int) -> BatchLog | None:
        job = self._jobs.find(app_id)
        if job is None:
            return None
        return BatchLog(self._clients, self._jobs, app_id, job, role_name, k)
