"""Logs of a replica: the log streams of its instance, one for each time it was started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.role_checks import check_replica
from torchx_sched_aws import cloudwatch
from torchx_sched_aws.client import AwsError, Clients, aws_errors
from torchx_sched_aws.cloudwatch import NoLogError, ReplicaLog
from torchx_sched_aws.sagemaker import jobs as sagemaker_jobs
from torchx_sched_aws.sagemaker.describe import role_of

#: Where the logs of training jobs are.
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


class TrainingLog(ReplicaLog):
    """The log of one replica.

    Args:
        clients: of AWS
        looks: looks at jobs, shared by all who follow them
        app_id: the app
        job: what SageMaker says of the job
        role_name: the role
        k: index of the replica within its role

    Raises:
        UnknownReplicaError: the app has no such role or replica
    """

    def __init__(
        self,
        clients: Clients,
        looks: CoalescingCache[dict[str, Any]],
        app_id: str,
        job: Mapping[str, Any],
        role_name: str,
        k: int,
    ) -> None:
        super().__init__(clients, LOG_GROUP)
        role = role_of(job)
        check_replica(app_id, {role.name: role.num_replicas}, role_name, k)
        self._looks = looks
        self._app_id = app_id
        self._prefix = f"{app_id}/algo-{k + 1}-"
        self._ended: float | None = sagemaker_jobs.ended_at(job)
        self._starts = -1
        # how many starts there were when all their streams were found
        self._complete_at = -2

    def ended_at(self) -> float | None:
        """Looks at the job together with others who follow it."""
        job = self._looks.get(
            self._app_id,
            lambda _: sagemaker_jobs.find(self._clients, self._app_id),
            max_age=cloudwatch.PAUSES[0],
        )
        if job is None:
            return 0.0  # deleted meanwhile
        self._starts = sum(
            1
            for item in job.get("SecondaryStatusTransitions") or ()
            if item["Status"] == "Training"
        )
        self._ended = sagemaker_jobs.ended_at(job)
        return self._ended

    def stream_names(self) -> list[str]:
        """Looks for streams if there may be more than it has named."""
        if self._ended is None and self._starts == self._complete_at:
            return []
        names: list[str] = []
        try:
            with aws_errors(f"look for the logs of {self._app_id}"):
                paginator = self._clients.client("logs").get_paginator("describe_log_streams")
                for page in paginator.paginate(
                    logGroupName=LOG_GROUP, logStreamNamePrefix=self._prefix
                ):
                    names += [str(item["logStreamName"]) for item in page["logStreams"]]
        except AwsError as e:
            if e.code != "ResourceNotFoundException":
                raise
            if self._ended is None:
                return []  # the first job of an account makes the group
            missing = NoLogError(str(e), e.code)
            missing.group = True
            raise missing from e
        # a stream comes up a little after its container has been started
        if names and len(names) >= self._starts:
            self._complete_at = self._starts
        return sorted(names)
