"""Log of a replica: one log stream for each start of the replica's instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.role_checks import check_replica
from torchx_sched_aws import cloudwatch
from torchx_sched_aws.client import aws_errors, suppressing
from torchx_sched_aws.sagemaker.describe import read_role
from torchx_sched_aws.sagemaker.states import ended_at

if TYPE_CHECKING:
    from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler

#: Log group of training jobs.
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


def replica_log(
    scheduler: AWSSageMakerScheduler, app_id: str, job: Mapping[str, Any], role_name: str, k: int
) -> cloudwatch.ReplicaLog:
    """Return the log of one replica.

    Args:
        scheduler: The scheduler, which queries and caches jobs.
        app_id: Id of the app.
        job: The training job, as ``DescribeTrainingJob`` returns it.
        role_name: Name of the role.
        k: Index of the replica in its role.

    Raises:
        UnknownReplicaError: The role or replica does not exist.
    """
    role = read_role(job)
    check_replica(app_id, {role.name: role.num_replicas}, role_name, k)
    prefix = f"{app_id}/algo-{k + 1}-"
    # How many starts the job had when the log streams of all starts had been found.
    complete_at: int | None = None

    def poll() -> tuple[float | None, list[str]]:
        nonlocal complete_at
        # Followers of the same job share one request.
        found = scheduler.find_job(app_id, cloudwatch.POLL_PAUSES[0])
        history = [] if found is None else found.get("SecondaryStatusTransitions") or []
        starts = [item["Status"] for item in history].count("Training")
        ended = 0.0 if found is None else ended_at(found)
        if ended is None and starts == complete_at:
            return None, []
        names: list[str] = []
        # The first job of an account creates the log group.
        with (
            suppressing(lambda e: ended is None and e.code == "ResourceNotFoundException"),
            aws_errors(f"list the log streams of {app_id}"),
        ):
            paginator = scheduler._clients.client("logs").get_paginator("describe_log_streams")
            for page in paginator.paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=prefix):
                names += [str(item["logStreamName"]) for item in page["logStreams"]]
        # A stream appears shortly after its container has started.
        if names and len(names) >= starts:
            complete_at = starts
        return ended, sorted(names)

    return cloudwatch.ReplicaLog(scheduler._clients, LOG_GROUP, poll)
