"""Log of a replica: the replica's node has one log stream for each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.role_checks import check_replica
from torchx_sched_aws import cloudwatch
from torchx_sched_aws.batch.describe import read_roles
from torchx_sched_aws.batch.request import container_properties
from torchx_sched_aws.batch.states import job_state
from torchx_sched_aws.cloudwatch import ReplicaLog
from torchx_specs.errors import RequestError
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_sched_aws.batch.scheduler import AWSBatchScheduler

#: Log group of jobs that do not set one.
LOG_GROUP = "/aws/batch/job"


class BatchLog(ReplicaLog):
    """The log of one replica.

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

    def __init__(
        self,
        scheduler: AWSBatchScheduler,
        app_id: str,
        job: Mapping[str, Any],
        role_name: str,
        k: int,
    ) -> None:
        self._index, role = _find_node(job, role_name, k)
        super().__init__(scheduler._clients, _log_group(container_properties(job)[role]))
        self._scheduler = scheduler
        self._app_id = app_id
        self._retried = int((job.get("retryStrategy") or {}).get("attempts") or 1) > 1
        self._node: Mapping[str, Any] = {}
        self._polled = False

    def ended_at(self) -> float | None:
        """Return the end of the replica in seconds since 1970, or None while it may still write.

        Followers of the same job share the requests. Return 0.0 for a job that was deleted or that
        Batch has removed.
        """
        max_age = cloudwatch.POLL_PAUSES[0]
        # Request the job first: its description must not be newer than the node's.
        job = self._scheduler.find_job(self._app_id, max_age)
        node = self._scheduler.nodes(job, max_age).get(self._index) if job else None
        self._node = node or {}
        self._polled = True
        if job is None:
            return 0.0
        last = job
        if not is_terminal(job_state(job)):
            # An ended node starts again if the job is retried.
            if self._retried or node is None or not is_terminal(job_state(node)):
                return None
            last = node
        return float(last.get("stoppedAt") or 0) / 1000

    def stream_names(self) -> Iterator[str]:
        """Yield the names of the node's log streams, one for each attempt."""
        if not self._polled:
            self.ended_at()
        containers = [a.get("container") or {} for a in self._node.get("attempts") or ()]
        containers.append(self._node.get("container") or {})
        for container in containers:
            if container.get("logStreamName"):
                yield str(container["logStreamName"])


def _find_node(job: Mapping[str, Any], role_name: str, k: int) -> tuple[int, int]:
    """Return the index of a replica's node and the index of its role."""
    roles = read_roles(job)
    replicas = {role.name: role.num_replicas for role in roles}
    check_replica(str(job["jobName"]), replicas, role_name, k)
    index = [role.name for role in roles].index(role_name)
    return sum(role.num_replicas for role in roles[:index]) + k, index


def _log_group(container: Mapping[str, Any]) -> str:
    logs = container.get("logConfiguration") or {}
    driver = logs.get("logDriver") or "awslogs"
    if driver != "awslogs":
        raise RequestError(
            f"the job's log driver is '{driver}'; only logs in CloudWatch ('awslogs') can be read"
        )
    return str((logs.get("options") or {}).get("awslogs-group") or LOG_GROUP)
