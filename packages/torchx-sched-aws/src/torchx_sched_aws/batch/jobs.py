"""Jobs of Batch: found by app id, described with their nodes, listed."""

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
from torchx_sched_aws.batch.submit import queues_of
from torchx_sched_aws.client import AccessDeniedError, AwsError, Clients, aws_errors
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import ListAppResponse

#: The tag of a job that counts as deleted.
TAG_DELETED = "torchx.pytorch.org/deleted"
#: How many queues are listed at the same time.
PARALLEL_QUEUES = 8
#: How many one DescribeJobs, or DescribeJobDefinitions, tells of.
DESCRIBED_AT_ONCE = 100
#: A node that nobody has looked at for so many seconds is not followed any longer.
FOLLOWED = 15.0

_APP_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,127}):([A-Za-z0-9][A-Za-z0-9_-]{0,127})")
logger = logging.getLogger(__name__)


class Jobs:
    """The jobs that can be reached; may be used from several threads.

    Args:
        clients: of AWS
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._ids: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._lock = threading.Lock()
        self._found: CoalescingCache[dict[str, Any]] = CoalescingCache()
        self._looks: CoalescingCache[dict[str, dict[str, Any] | None]] = CoalescingCache()
        # job and node, and when it was last looked at
        self._followed: dict[tuple[str, str], float] = {}

    def remember(self, app_id: str, job_id: str) -> None:
        """Notes Batch's id of an app, which never changes."""
        with self._lock:
            self._ids[app_id] = job_id

    def forget(self, app_id: str) -> None:
        """Leaves an app out of lists, although Batch may not have ended it yet."""
        with self._lock:
            self._deleted.add(app_id)

    def find(self, app_id: str) -> dict[str, Any] | None:
        """Returns what Batch says of an app's job, None if there is none or it was deleted.

        Many who ask at once share an answer.

        Raises:
            AwsError: AWS refuses, or does not answer
        """
        return self._found.get(app_id, lambda _: self._find(app_id))

    def _find(self, app_id: str) -> dict[str, Any] | None:
        job_id = self._ids.get(app_id) or self._search(app_id)
        if job_id is None:
            return None
        found = self.by_ids([job_id])
        if not found or was_deleted(found[0], TAG_DELETED):
            return None
        self.remember(app_id, job_id)
        return found[0]

    def look(
        self, job_id: str, node_id: str, old: float = 0.0
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Returns what Batch says of a job and of one of its nodes, None of what it does not know.

        Of a job whose nodes are followed by many threads, one answer tells all of them.

        Args:
            job_id: Batch's id of the job
            node_id: the node's, or the job's own where that has no nodes
            old: how many seconds ago the answer may have been given

        Raises:
            AwsError: AWS refuses, or does not answer
        """

        def find(_: object) -> dict[str, dict[str, Any] | None]:
            with self._lock:
                since = time.monotonic() - FOLLOWED
                self._followed = {key: at for key, at in self._followed.items() if at > since}
                nodes = [node for job, node in self._followed if job == job_id]
            # the job first: what is said of nodes is not older
            ids = list(dict.fromkeys([job_id, *nodes]))
            found = {str(one["jobId"]): one for one in self.by_ids(ids)}
            return {one: found.get(one) for one in ids}

        with self._lock:
            self._followed[job_id, node_id] = time.monotonic()
        said = self._looks.get(job_id, find, old) or {}
        if node_id not in said:  # by others, before this node was followed
            said = self._looks.get(job_id, find) or {}
        return said.get(job_id), said.get(node_id)

    def by_ids(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Returns what Batch says of jobs and nodes; those it does not know are left out."""
        found: list[dict[str, Any]] = []
        for start in range(0, len(ids), DESCRIBED_AT_ONCE):
            chunk = list(ids[start : start + DESCRIBED_AT_ONCE])
            with aws_errors(f"look at the job {chunk[0]}"):
                found += self._clients.client("batch").describe_jobs(jobs=chunk)["jobs"]
        return found

    def nodes(self, job: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Returns the nodes of a job by their index; those that were never started are left out."""
        properties = job.get("nodeProperties")
        if not properties:
            return {0: dict(job)}
        if job.get("status") in ("SUBMITTED", "PENDING", "RUNNABLE") and not job.get("attempts"):
            return {}
        ids = [f"{job['jobId']}#{index}" for index in range(properties["numNodes"])]
        found = {}
        for node in self.by_ids(ids):
            _, _, index = str(node["jobId"]).partition("#")
            if index.isdigit():
                found[int(index)] = node
        return found

    def node(self, job: Mapping[str, Any], index: int) -> dict[str, Any] | None:
        """Returns one node of a job, None if it was never started."""
        if not job.get("nodeProperties"):
            return dict(job)
        found = self.by_ids([f"{job['jobId']}#{index}"])
        return found[0] if found else None

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
            # the queue does not exist
        return None

    def _summaries(self, queue: str, query: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
        with aws_errors(f"list the jobs of the queue {queue}"):
            pages = self._clients.client("batch").get_paginator("list_jobs")
            for page in pages.paginate(jobQueue=queue, filters=[query]):
                yield from page["jobSummaryList"]

    def list(self, session_name: str, queues: Sequence[str] = ()) -> list[ListAppResponse]:
        """Returns TorchX's jobs, those of the same queue together, the newest first.

        Each page of Batch's answers is looked through and forgotten: memory is needed for TorchX's
        jobs only.

        Args:
            session_name: for the handles
            queues: the queues to look at, all if empty
        """
        names = list(queues) or [str(queue["jobQueueName"]) for queue in queues_of(self._clients)]

        def of_queue(queue: str) -> list[_Listed]:
            # the filter is what makes Batch tell of jobs in all states in one list
            query = {"name": "AFTER_CREATED_AT", "values": ["1"]}
            found = (
                _listed(queue, job, session_name)
                for job in self._summaries(queue, query)
                if _is_ours(job) and job.get("statusReason") != DELETED
            )
            return [one for one in found if one.item.app_id not in self._deleted]

        if len(names) < 2:
            found = [one for name in names for one in of_queue(name)]
        else:
            with ThreadPoolExecutor(min(len(names), PARALLEL_QUEUES)) as pool:
                found = [one for some in pool.map(of_queue, names) for one in some]
        gone = self._deleted_after_their_end([one for one in found if is_terminal(one.item.state)])
        return [one.item for one in found if one.job_id not in gone]

    def _deleted_after_their_end(self, jobs: Sequence[_Listed]) -> set[str]:
        """Returns the ids of those jobs that are marked as deleted.

        Lists have no tags, and to describe every job would take long. But who deletes a job
        deregisters its definition: only jobs without an active one are described.
        """
        definitions = sorted({job.definition for job in jobs})
        active: set[str] = set()
        for start in range(0, len(definitions), DESCRIBED_AT_ONCE):
            chunk = definitions[start : start + DESCRIBED_AT_ONCE]
            try:
                with aws_errors("look at the job definitions of jobs that have ended"):
                    pages = self._clients.client("batch").get_paginator("describe_job_definitions")
                    for page in pages.paginate(jobDefinitions=chunk):
                        active.update(
                            str(found["jobDefinitionArn"])
                            for found in page["jobDefinitions"]
                            if found.get("status") == "ACTIVE"
                        )
            except AccessDeniedError as e:
                logger.debug("jobs that were deleted after their end are listed: %s", e)
                return set()
        ids = [job.job_id for job in jobs if job.definition not in active]
        return {str(job["jobId"]) for job in self.by_ids(ids) if was_deleted(job, TAG_DELETED)}


@dataclass(frozen=True)
class _Listed:
    item: ListAppResponse
    job_id: str
    definition: str


def definition_name(job: Mapping[str, Any]) -> str:
    name = str(job.get("jobDefinition") or "").rpartition("job-definition/")[2]
    return name.partition(":")[0]


def _is_ours(job: Mapping[str, Any]) -> bool:
    """Returns True for jobs of ours, and of upstream, which named the definition as the job."""
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
