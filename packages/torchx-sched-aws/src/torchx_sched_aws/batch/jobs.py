"""Queries of Batch jobs: find a job by app id, poll a job and its nodes, list jobs."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_sched_aws.batch.request import DEFINITION_PREFIX
from torchx_sched_aws.batch.states import (
    DELETED,
    job_state,
    was_deleted,
)
from torchx_sched_aws.batch.submit import list_queues
from torchx_sched_aws.client import AccessDeniedError, AwsError, Clients, aws_errors
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import ListAppResponse

#: Tag that marks deleted jobs, because Batch itself keeps ended jobs for days.
TAG_DELETED = "torchx.pytorch.org/deleted"
#: Number of queues to list concurrently.
PARALLEL_QUEUES = 8
#: Largest number of ids in one DescribeJobs or DescribeJobDefinitions request.
MAX_DESCRIBED = 100
#: Threads share one DescribeJobs request. The request leaves out a node that no thread has polled
#: for this many seconds.
POLL_EXPIRY = 15.0

_APP_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,127}):([A-Za-z0-9][A-Za-z0-9_-]{0,127})")
logger = logging.getLogger(__name__)


class Jobs:
    """The Batch jobs in the clients' account and region; thread-safe.

    Args:
        clients: The boto3 clients to use.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._ids: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._lock = threading.Lock()
        self._job_cache: CoalescingCache[dict[str, Any]] = CoalescingCache()
        self._poll_cache: CoalescingCache[dict[str, dict[str, Any] | None]] = CoalescingCache()
        # Time of the last poll, by job id and node id.
        self._polled_nodes: dict[tuple[str, str], float] = {}

    def remember_id(self, app_id: str, job_id: str) -> None:
        """Cache the Batch job id of an app, which never changes."""
        with self._lock:
            self._ids[app_id] = job_id

    def hide(self, app_id: str) -> None:
        """Leave an app out of lists, even if Batch still reports its job as running."""
        with self._lock:
            self._deleted.add(app_id)

    def find(self, app_id: str) -> dict[str, Any] | None:
        """Return the description of an app's job, or None if the job is missing or deleted.

        Concurrent callers share one request.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        return self._job_cache.get(app_id, lambda _: self._find(app_id))

    def _find(self, app_id: str) -> dict[str, Any] | None:
        job_id = self._ids.get(app_id) or self._search(app_id)
        if job_id is None:
            return None
        found = self.describe_jobs_by_id([job_id])
        if not found or was_deleted(found[0], TAG_DELETED):
            return None
        self.remember_id(app_id, job_id)
        return found[0]

    def poll(
        self, job_id: str, node_id: str, max_age: float = 0.0
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the descriptions of a job and of one of its nodes, each None if it is unknown.

        Threads that poll nodes of the same job share one request, which describes all these nodes.

        Args:
            job_id: Batch's id of the job.
            node_id: Batch's id of the node, or of the job if it has no nodes.
            max_age: Maximum age of cached descriptions, in seconds.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """

        def find(_: object) -> dict[str, dict[str, Any] | None]:
            with self._lock:
                since = time.monotonic() - POLL_EXPIRY
                self._polled_nodes = {
                    key: at for key, at in self._polled_nodes.items() if at > since
                }
                nodes = [node for job, node in self._polled_nodes if job == job_id]
            # Request the job first: its description must not be newer than a node's.
            ids = list(dict.fromkeys([job_id, *nodes]))
            found = {str(item["jobId"]): item for item in self.describe_jobs_by_id(ids)}
            return {job_or_node: found.get(job_or_node) for job_or_node in ids}

        with self._lock:
            self._polled_nodes[job_id, node_id] = time.monotonic()
        descriptions = self._poll_cache.get(job_id, find, max_age) or {}
        if node_id not in descriptions:  # another thread's request did not include this node
            descriptions = self._poll_cache.get(job_id, find) or {}
        return descriptions.get(job_id), descriptions.get(node_id)

    def describe_jobs_by_id(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the descriptions of jobs and nodes; unknown ids are left out."""
        found: list[dict[str, Any]] = []
        for start in range(0, len(ids), MAX_DESCRIBED):
            chunk = list(ids[start : start + MAX_DESCRIBED])
            with aws_errors(f"describe the job {chunk[0]}"):
                found += self._clients.client("batch").describe_jobs(jobs=chunk)["jobs"]
        return found

    def nodes(self, job: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the descriptions of a job's started nodes, by index."""
        properties = job.get("nodeProperties")
        if not properties:
            return {0: dict(job)}
        if job.get("status") in ("SUBMITTED", "PENDING", "RUNNABLE") and not job.get("attempts"):
            return {}
        ids = [f"{job['jobId']}#{index}" for index in range(properties["numNodes"])]
        found = {}
        for node in self.describe_jobs_by_id(ids):
            _, _, index = str(node["jobId"]).partition("#")
            if index.isdigit():
                found[int(index)] = node
        return found

    def _search(self, app_id: str) -> str | None:
        parsed = _APP_ID.fullmatch(app_id)
        if parsed is None:
            return None
        queue, name = parsed.groups()
        try:
            for job in self._summaries(queue, {"name": "JOB_NAME", "values": [name]}):
                if job["jobName"] == name:
                    return str(job["jobId"])
        except AwsError as e:
            if e.code != "ClientException":
                raise
            # ClientException: the queue does not exist.
        return None

    def _summaries(self, queue: str, query: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        with aws_errors(f"list the jobs of the queue {queue}"):
            pages = self._clients.client("batch").get_paginator("list_jobs")
            for page in pages.paginate(jobQueue=queue, filters=[query]):
                yield from page["jobSummaryList"]

    def list(self, session_name: str, queues: Sequence[str] = ()) -> list[ListAppResponse]:
        """Return the jobs that TorchX created, grouped by queue, the newest first.

        Pages are processed one at a time, so memory use depends only on the number of these jobs.

        Args:
            session_name: Name of the session, for the app handles.
            queues: Names of the queues to list; empty means all.
        """
        names = list(queues) or [str(queue["jobQueueName"]) for queue in list_queues(self._clients)]

        def list_queue(queue: str) -> list[_Listed]:
            # Without a filter, ListJobs returns the jobs of a single state.
            query = {"name": "AFTER_CREATED_AT", "values": ["1"]}
            found = (
                _listed(queue, job, session_name)
                for job in self._summaries(queue, query)
                if _is_torchx_job(job) and job.get("statusReason") != DELETED
            )
            return [job for job in found if job.item.app_id not in self._deleted]

        if len(names) < 2:
            found = [job for name in names for job in list_queue(name)]
        else:
            with ThreadPoolExecutor(min(len(names), PARALLEL_QUEUES)) as pool:
                found = [job for jobs in pool.map(list_queue, names) for job in jobs]
        deleted = self._find_deleted([job for job in found if is_terminal(job.item.state)])
        return [job.item for job in found if job.job_id not in deleted]

    def _find_deleted(self, jobs: Sequence[_Listed]) -> set[str]:
        """Return the ids of jobs that carry the tag for deleted jobs.

        ``ListJobs`` returns no tags, and describing every job would take long. Deleting a job also
        deregisters its definition, so describe only the jobs without an active definition.
        """
        definitions = sorted({job.definition for job in jobs})
        active: set[str] = set()
        for start in range(0, len(definitions), MAX_DESCRIBED):
            chunk = definitions[start : start + MAX_DESCRIBED]
            try:
                with aws_errors("describe the job definitions of ended jobs"):
                    pages = self._clients.client("batch").get_paginator("describe_job_definitions")
                    for page in pages.paginate(jobDefinitions=chunk):
                        active.update(
                            str(found["jobDefinitionArn"])
                            for found in page["jobDefinitions"]
                            if found.get("status") == "ACTIVE"
                        )
            except AccessDeniedError as e:
                logger.debug("the list includes jobs that were deleted after their end: %s", e)
                return set()
        ids = [job.job_id for job in jobs if job.definition not in active]
        return {
            str(job["jobId"])
            for job in self.describe_jobs_by_id(ids)
            if was_deleted(job, TAG_DELETED)
        }


@dataclass(frozen=True)
class _Listed:
    item: ListAppResponse
    job_id: str
    definition: str


def definition_name(job: Mapping[str, Any]) -> str:
    """Return the name of a job's definition, without its revision."""
    name = str(job.get("jobDefinition") or "").rpartition("job-definition/")[2]
    return name.partition(":")[0]


def _is_torchx_job(job: Mapping[str, Any]) -> bool:
    """Return whether TorchX created a job.

    Upstream's TorchX gives a job and its job definition the same name.
    """
    definition = definition_name(job)
    return definition.startswith(DEFINITION_PREFIX) or definition == job.get("jobName")


def _listed(queue: str, job: Mapping[str, Any], session_name: str) -> _Listed:
    app_id = f"{queue}:{job['jobName']}"
    item = ListAppResponse(
        app_id,
        job_state(job),
        f"aws_batch://{session_name}/{app_id}",
        definition_name(job).removeprefix(DEFINITION_PREFIX),
    )
    return _Listed(item, str(job["jobId"]), str(job["jobDefinition"]))
