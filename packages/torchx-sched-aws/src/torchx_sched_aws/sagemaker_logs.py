"""Logs of a replica: the log streams of its instance, one for each time it was started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from torchx_sched_aws import sagemaker_jobs
from torchx_sched_aws.clients import AwsError, Clients, aws_errors
from torchx_sched_aws.cloudwatch import (
    SETTLE,
    Follower,
    LogStream,
    NoLogError,
    UnknownReplicaError,
    read,
)
from torchx_specs.errors import nearest

#: Where the logs of training jobs are.
LOG_GROUP = "/aws/sagemaker/TrainingJobs"


class ReplicaLog:
    """The log of one replica.

    Args:
        clients: of AWS
        app_id: the app
        job: what SageMaker says of the job
        role_name: the role
        k: index of the replica within its role
        since: only what was written at that time or later
        until: only what was written before that time
        settle: how long after the end lines may arrive, in seconds

    Raises:
        UnknownReplicaError: the app has no such role or replica
    """

    def __init__(
        self,
        clients: Clients,
        app_id: str,
        job: Mapping[str, Any],
        role_name: str,
        k: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        settle: float = SETTLE,
    ) -> None:
        role = sagemaker_jobs.role_of(job)
        if role_name != role.name:
            raise UnknownReplicaError(
                f"{app_id} has no role '{role_name}';{nearest(role_name, [role.name])}"
                f" its role: {role.name}"
            )
        if not 0 <= k < role.num_replicas:
            raise UnknownReplicaError(
                f"role '{role_name}' of {app_id} has no replica {k}, it has {role.num_replicas}"
            )
        self._clients = clients
        self._app_id = app_id
        self._prefix = f"{app_id}/algo-{k + 1}-"
        self._since = since
        self._until = until
        self._settle = settle
        self._ended: float | None = sagemaker_jobs.ended_at(job)
        self._starts = -1
        self._looked_at_starts = -2
        self._streams: dict[str, LogStream] = {}

    def lines(self, follow: bool) -> Iterator[str]:
        """Yields the lines, each with its newline.

        Args:
            follow: go on until the job has ended
        """
        if follow:
            follower = Follower(self._clients, self._ended_at, settle=self._settle)
            yield from follower.follow(self._known_streams)
        else:
            yield from read(self._known_streams())

    def _ended_at(self) -> float | None:
        job = sagemaker_jobs.find(self._clients, self._app_id)
        if job is None:
            return 0.0  # deleted meanwhile
        self._starts = sum(
            1
            for item in job.get("SecondaryStatusTransitions") or ()
            if item["Status"] == "Training"
        )
        self._ended = sagemaker_jobs.ended_at(job)
        return self._ended

    def _known_streams(self) -> list[LogStream]:
        """Looks for streams if there may be more than are known, and returns all of them."""
        if not self._streams or self._ended is not None or self._starts != self._looked_at_starts:
            for name in self._stream_names():
                if name not in self._streams:
                    self._streams[name] = LogStream(
                        self._clients, LOG_GROUP, name, self._since, self._until
                    )
            # a stream comes up a little after its container has been started
            if len(self._streams) >= self._starts:
                self._looked_at_starts = self._starts
        return list(self._streams.values())

    def _stream_names(self) -> list[str]:
        """Returns the names of the replica's streams, in the order of their starts.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
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
        return sorted(names)
