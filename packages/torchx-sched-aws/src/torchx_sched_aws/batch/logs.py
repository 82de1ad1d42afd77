"""Log of a replica: the replica's node has one log stream for each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.role_checks import check_replica
from torchx_sched_aws import cloudwatch
from torchx_sched_aws.batch.describe import read_roles
from torchx_sched_aws.batch.request import container_properties
from torchx_sched_aws.batch.states import job_state
from torchx_specs.errors import RequestError
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_sched_aws.batch.scheduler import AWSBatchScheduler

#: Log group of jobs that do not set one.
LOG_GROUP = "/aws/batch/job"


def replica_log(
    scheduler: AWSBatchScheduler, app_id: str, job: Mapping[str, Any], role_name: str, k: int
) -> cloudwatch.ReplicaLog:
    """Return the log of one replica.

    Args:
        scheduler: The scheduler, which queries and caches jobs.
        app_id: Id of the app.
        job: The job, as ``DescribeJobs`` returns it.
        role_name: Name of the role.
        k: Index of the replica in its role.

    Raises:
        UnknownReplicaError: The role or replica does not exist.
        RequestError: The job does not send its logs to CloudWatch.
    """
    index, role = _find_node(job, role_name, k)
    is_retried = int((job.get("retryStrategy") or {}).get("attempts") or 1) > 1

    def poll() -> tuple[float | None, Iterator[str]]:
        # Followers of the same job share the requests. Request the job first: its description must
        # not be newer than the node's.
        max_age = cloudwatch.POLL_PAUSES[0]
        job = scheduler.find_job(app_id, max_age)
        if job is None:  # the job was deleted, or Batch has removed it
            return 0.0, iter(())
        node = scheduler.nodes(job, max_age).get(index) or {}
        return _ended_at(job, node, is_retried), _stream_names(node)

    group = _log_group(container_properties(job)[role])
    return cloudwatch.ReplicaLog(scheduler._clients, group, poll)


def _ended_at(job: Mapping[str, Any], node: Mapping[str, Any], is_retried: bool) -> float | None:
    """Return the end of a replica in seconds since 1970, or None while it may still write."""
    last = job
    if not is_terminal(job_state(job)):
        # An ended node starts again if the job is retried.
        if is_retried or not is_terminal(job_state(node)):
            return None
        last = node
    return float(last.get("stoppedAt") or 0) / 1000


def _stream_names(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the node's log streams, one for each attempt."""
    for attempt in (*(node.get("attempts") or ()), node):
        name = (attempt.get("container") or {}).get("logStreamName")
        if name:
            yield str(name)


def _find_node(job: Mapping[str, Any], role_name: str, k: int) -> tuple[int, int]:
    """Return the index of a replica's node and the index of its role."""
    roles = read_roles(job)
    replicas = {role.name: role.num_replicas for role in roles}
    check_replica(str(job["jobName"]), replicas, role_name, k)
    index = list(replicas).index(role_name)
    return sum(role.num_replicas for role in roles[:index]) + k, index


def _log_group(container: Mapping[str, Any]) -> str:
    logs = container.get("logConfiguration") or {}
    driver = logs.get("logDriver") or "awslogs"
    if driver != "awslogs":
        raise RequestError(
            f"the job's log driver is '{driver}'; only logs in CloudWatch ('awslogs') can be read"
        )
    return str((logs.get("options") or {}).get("awslogs-group") or LOG_GROUP)
