"""Logs of a replica: the streams of its node, attempt after attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from torchx_sched_aws.batch_container import unsuitable
from torchx_sched_aws.batch_jobs import Jobs, roles_of
from torchx_sched_aws.batch_request import containers_of
from torchx_sched_aws.batch_states import job_state
from torchx_sched_aws.clients import Clients
from torchx_sched_aws.cloudwatch import (
    SETTLE,
    Follower,
    LogStream,
    UnknownReplicaError,
    read,
)
from torchx_specs.errors import RequestError, nearest
from torchx_specs.status import is_terminal

#: Where the logs of Batch's jobs are unless they say otherwise.
LOG_GROUP = "/aws/batch/job"


class ReplicaLog:
    """The log of one replica.

    Args:
        clients: of AWS
        jobs: of Batch
        job: what Batch says of the job
        role_name: the role
        k: index of the replica within its role
        since: only what was written at that time or later
        until: only what was written before that time
        settle: how long after the end lines may arrive, in seconds

    Raises:
        UnknownReplicaError: the app has no such role or replica
        RequestError: the logs do not go to CloudWatch
    """

    def __init__(
        self,
        clients: Clients,
        jobs: Jobs,
        job: Mapping[str, Any],
        role_name: str,
        k: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        settle: float = SETTLE,
    ) -> None:
        self._clients = clients
        self._jobs = jobs
        self._job_id = str(job["jobId"])
        self._several = bool(job.get("nodeProperties"))
        self._since = since
        self._until = until
        self._settle = settle
        index, role = _node_of(job, role_name, k)
        self._index = index
        self._group = _group_of(containers_of(job)[role])
        self._retried = int((job.get("retryStrategy") or {}).get("attempts") or 1) > 1
        self._streams: dict[str, LogStream] = {}
        self._node: Mapping[str, Any] | None = None

    def lines(self, follow: bool) -> Iterator[str]:
        """Yields the lines of all attempts, each with its newline.

        Args:
            follow: go on until the replica has ended for good
        """
        if follow:
            follower = Follower(self._clients, self._ended_at, settle=self._settle)
            yield from follower.follow(self._known_streams)
        else:
            self._ended_at()
            yield from read(self._known_streams())

    def _ended_at(self) -> float | None:
        """Looks at job and node; returns when the replica ended for good, None if it has not."""
        ids = [self._job_id]
        if self._several:
            ids.append(f"{self._job_id}#{self._index}")
        found = {str(one["jobId"]): one for one in self._jobs.by_ids(ids)}
        job = found.get(self._job_id)
        self._node = found.get(ids[-1])
        if job is None:
            return 0.0  # Batch has forgotten it
        last = job
        if not is_terminal(job_state(job)):
            # a node that has ended starts again if the job does
            if self._retried or self._node is None or not is_terminal(job_state(self._node)):
                return None
            last = dict(self._node)
        return float(last.get("stoppedAt") or 0) / 1000

    def _known_streams(self) -> list[LogStream]:
        node = self._node or {}
        containers = [attempt.get("container") or {} for attempt in node.get("attempts") or ()]
        containers.append(node.get("container") or {})
        for container in containers:
            name = container.get("logStreamName")
            if name and name not in self._streams:
                self._streams[name] = LogStream(
                    self._clients, self._group, name, self._since, self._until
                )
        return list(self._streams.values())


def _node_of(job: Mapping[str, Any], role_name: str, k: int) -> tuple[int, int]:
    """Returns the index of a replica's node, and that of its role."""
    first = 0
    roles = roles_of(job)
    for index, role in enumerate(roles):
        if role.name == role_name:
            if not 0 <= k < role.num_replicas:
                raise UnknownReplicaError(
                    f"role '{role_name}' of {job['jobName']} has no replica {k}, it has"
                    f" {role.num_replicas}"
                )
            return first + k, index
        first += role.num_replicas
    names = [role.name for role in roles]
    shown = "" if unsuitable(role_name) else role_name
    raise UnknownReplicaError(
        f"{job['jobName']} has no role '{shown}';{nearest(shown, names)} roles: {', '.join(names)}"
    )


def _group_of(container: Mapping[str, Any]) -> str:
    logs = container.get("logConfiguration") or {}
    driver = logs.get("logDriver") or "awslogs"
    if driver != "awslogs":
        raise RequestError(f"the logs of this job go to '{driver}', not to CloudWatch")
    return str((logs.get("options") or {}).get("awslogs-group") or LOG_GROUP)
