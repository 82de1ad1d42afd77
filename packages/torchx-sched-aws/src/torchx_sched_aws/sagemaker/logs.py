"""Log of a replica: one log stream for each start of the replica's instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.role_checks import check_replica
from torchx_sched_aws import cloudwatch
from torchx_sched_aws.client import AwsError, aws_errors
from torchx_sched_aws.cloudwatch import NoLogError, ReplicaLog
from torchx_sched_aws.sagemaker.describe import read_role
from torchx_sched_aws.sagemaker.states import ended_at

if TYPE_CHECKING:
    from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler

#: Log group of training jobs.
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


class TrainingLog(ReplicaLog):
    """The log of one replica.

    Args:
        scheduler: The scheduler, which queries and caches jobs.
        job: The training job, as ``DescribeTrainingJob`` returns it.
        role_name: Name of the role.
        k: Index of the replica in its role.

    Raises:
        UnknownReplicaError: The role or replica does not exist.
    """

    def __init__(
        self, scheduler: AWSSageMakerScheduler, job: Mapping[str, Any], role_name: str, k: int
    ) -> None:
        super().__init__(scheduler._clients, LOG_GROUP)
        self._scheduler = scheduler
        self._app_id = str(job["TrainingJobName"])
        role = read_role(job)
        check_replica(self._app_id, {role.name: role.num_replicas}, role_name, k)
        self._prefix = f"{self._app_id}/algo-{k + 1}-"
        self._ended: float | None = ended_at(job)
        self._starts = -1
        # The value of _starts when the log streams of all starts had been found.
        self._complete_at = -2

    def ended_at(self) -> float | None:
        """Return the end of the job in seconds since 1970, or None while the job runs.

        Followers of the same job share one request. Return 0.0 for a deleted job.
        """
        job = self._scheduler.find_job(self._app_id, cloudwatch.POLL_PAUSES[0])
        if job is None:
            return 0.0  # the job was deleted
        self._starts = sum(
            1
            for item in job.get("SecondaryStatusTransitions") or ()
            if item["Status"] == "Training"
        )
        self._ended = ended_at(job)
        return self._ended

    def stream_names(self) -> list[str]:
        """Return the names of the replica's log streams.

        The list is empty while the job runs and has not started again since the last complete list,
        or while there is no log group yet.

        Raises:
            NoLogError: The job has ended, and the log group does not exist.
            AwsError: AWS refused the request or did not answer.
        """
        if self._ended is None and self._starts == self._complete_at:
            return []
        names: list[str] = []
        try:
            with aws_errors(f"list the log streams of {self._app_id}"):
                paginator = self._clients.client("logs").get_paginator("describe_log_streams")
                for page in paginator.paginate(
                    logGroupName=LOG_GROUP, logStreamNamePrefix=self._prefix
                ):
                    names += [str(item["logStreamName"]) for item in page["logStreams"]]
        except AwsError as e:
            if e.code != "ResourceNotFoundException":
                raise
            if self._ended is None:
                return []  # no log group yet: the first job of an account creates it
            missing = NoLogError(str(e), e.code)
            missing.group = True
            raise missing from e
        # A stream appears shortly after its container has started.
        if names and len(names) >= self._starts:
            self._complete_at = self._starts
        return sorted(names)
