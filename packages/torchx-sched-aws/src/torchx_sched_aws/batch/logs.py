"""Logs of a replica: the streams of its node, attempt after attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchx_kit.role_checks import check_replica
from torchx_sched_aws import cloudwatch
from torchx_sched_aws.batch.describe import roles_of
from torchx_sched_aws.batch.jobs import Jobs
from torchx_sched_aws.batch.request import containers_of
from torchx_sched_aws.batch.states import job_state
from torchx_sched_aws.client import Clients
from torchx_sched_aws.cloudwatch import ReplicaLog
from torchx_specs.errors import RequestError
from torchx_specs.model.status import is_terminal

#: Where the logs of Batch's jobs are unless they say otherwise.
LOG_GROUP = "/aws/batch/job"


class BatchLog(ReplicaLog):
    """The log of one replica.

    Args:
        clients: of AWS
        jobs: of Batch
        job: what Batch says of the job
        role_name: the role
        k: index of the replica within its role

    Raises:
        UnknownReplicaError: the app has no such role or replica
        RequestError: the logs do not go to CloudWatch
    """

    def __init__(
        self, clients: Clients, jobs: Jobs, job: Mapping[str, Any], role_name: str, k: int
    ) -> None:
        index, role = _node_of(job, role_name, k)
        super().__init__(clients, _group_of(containers_of(job)[role]))
        self._jobs = jobs
        self._job_id = self._node_id = str(job["jobId"])
        if job.get("nodeProperties"):
            self._node_id += f"#{index}"
        self._retried = int((job.get("retryStrategy") or {}).get("attempts") or 1) > 1
        self._node: Mapping[str, Any] = {}
        self._looked = False

    def ended_at(self) -> float | None:
        """Looks at job and node together with others who follow nodes of the same job."""
        job, node = self._jobs.look(self._job_id, self._node_id, old=cloudwatch.PAUSES[0])
        self._node = node or {}
        self._looked = True
        if job is None:
            return 0.0  # Batch has forgotten it
        last = job
        if not is_terminal(job_state(job)):
            # a node that has ended starts again if the job does
            if self._retried or node is None or not is_terminal(job_state(node)):
                return None
            last = node
        return float(last.get("stoppedAt") or 0) / 1000

    def stream_names(self) -> Iterator[str]:
        if not self._looked:
            self.ended_at()
        containers = [a.get("container") or {} for a in self._node.get("attempts") or ()]
        containers.append(self._node.get("container") or {})
        for container in containers:
            if container.get("logStreamName"):
                yield str(container["logStreamName"])


def _node_of(job: Mapping[str, Any], role_name: str, k: int) -> tuple[int, int]:
    """Returns the index of a replica's node, and that of its role."""
    roles = roles_of(job)
    replicas = {role.name: role.num_replicas for role in roles}
    check_replica(str(job["jobName"]), replicas, role_name, k)
    index = [role.name for role in roles].index(role_name)
    return sum(role.num_replicas for role in roles[:index]) + k, index


def _group_of(container: Mapping[str, Any]) -> str:
    logs = container.get("logConfiguration") or {}
    driver = logs.get("logDriver") or "awslogs"
    if driver != "awslogs":
        raise RequestError(f"the logs of this job go to '{driver}', not to CloudWatch")
    return str((logs.get("options") or {}).get("awslogs-group") or LOG_GROUP)
