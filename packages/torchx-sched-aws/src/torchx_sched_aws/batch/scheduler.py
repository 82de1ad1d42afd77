"""``aws_batch``: runs apps as jobs of AWS Batch.

An app of one replica that needs no particular instance type is a job of one container. Any other
app is a multi-node parallel job, in which each replica is a node and each role is a group of nodes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.jobs.arrays import split_element_id
from torchx_sched_aws.base_scheduler import AwsScheduler
from torchx_sched_aws.batch.arrays import (
    TAG_DELETED_CHILDREN,
    BatchArrays,
    array_size,
    child_index,
    child_job,
    deleted_children,
    deleted_tag,
)
from torchx_sched_aws.batch.attempts import requeue_problems
from torchx_sched_aws.batch.describe import describe, find_node, log_group, log_streams
from torchx_sched_aws.batch.options import RULES, AWSBatchOpts, queue_name, request_problems
from torchx_sched_aws.batch.request import DEFINITION_PREFIX, BatchJob, make_request
from torchx_sched_aws.batch.states import (
    CANCELLED,
    DELETED,
    TAG_DELETED,
    WAITING,
    definition_name,
    ended_at,
    job_state,
    was_deleted,
)
from torchx_sched_aws.batch.submit import list_queues, submit
from torchx_sched_aws.client import AccessDeniedError, AwsError, is_client_error, is_denied
from torchx_sched_aws.cloudwatch import LOG_DELAY, POLL_PAUSES, PollStreams
from torchx_sched_aws.tags import TAG_TORCHX_APPNAME, TAG_TORCHX_VER
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse
from torchx_specs.schedulers.features import No

#: Number of queues to list concurrently.
PARALLEL_QUEUES = 8
#: Largest number of ids in one DescribeJobs or DescribeJobDefinitions request.
MAX_DESCRIBED = 100

# Pauses between attempts to end a child of an array job that Batch has not created yet, in seconds.
_CREATION_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
# Maximum attempts to write the tag of deleted children, which other clients may change, too.
_TAG_ATTEMPTS = 5

_APP_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,127}):([A-Za-z0-9][A-Za-z0-9_-]{0,127})")


def create_scheduler(
    session_name: str,
    client: Any = None,
    log_client: Any = None,
    docker_client: Any = None,
    **kwargs: Any,
) -> AWSBatchScheduler:
    """Return a scheduler.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of Batch to use instead of a new one.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        docker_client: Unused; kept for code written for upstream's TorchX.
        **kwargs: Parameters of other schedulers, which are ignored.
    """
    return AWSBatchScheduler(session_name, client, log_client, docker_client)


class AWSBatchScheduler(AwsScheduler[AWSBatchOpts]):
    """Runs apps on AWS Batch.

    .. code-block:: sh

        torchx run -s aws_batch -cfg queue=gpu dist.ddp -h aws_p4d.24xlarge -j 2x8 --script train.py

    ``macros.rank0_env`` names the variable in which Batch gives the first node's address to all
    other nodes. Batch does not set it on the first node itself.

    Args:
        session_name: Name of the TorchX session.
        client: boto3 client of Batch to use instead of a new one.
        log_client: boto3 client of CloudWatch Logs to use instead of a new one.
        docker_client: Unused; kept for code written for upstream's TorchX.
        log_delay: How long the last log lines may take to arrive after a replica's end, in seconds.
    """

    name = "aws_batch"
    service = "batch"
    end_command = "aws batch terminate-job --job-id {jobId} --reason TEXT"
    features = replace(
        AwsScheduler.features,
        secrets=True,
        requeue=True,
        dependencies=True,
        arrays=True,
        array_limit=No("an array job of Batch has no limit of running children"),
    )
    request_rules = RULES

    def __init__(
        self,
        session_name: str,
        client: Any = None,
        log_client: Any = None,
        docker_client: Any = None,
        *,
        log_delay: float = LOG_DELAY,
    ) -> None:
        super().__init__(session_name, client, log_client, log_delay=log_delay)
        # Batch's ids of jobs, by app id.
        self._ids: dict[str, str] = {}
        self._nodes: CoalescingCache[dict[int, dict[str, Any]]] = CoalescingCache()

    def _request_problems(self, app: AppDef, cfg: AWSBatchOpts) -> Iterable[str]:
        return (*request_problems(app, cfg), *requeue_problems(app, cfg))

    def _submit_dryrun(self, app: AppDef, cfg: AWSBatchOpts) -> AppDryRunInfo[BatchJob]:
        return AppDryRunInfo(make_request(app, cfg), str)

    @property
    def app_arrays(self) -> BatchArrays:
        """Submits many apps as children of array jobs."""
        return BatchArrays(self)

    def with_dependency(
        self, cfg: Mapping[str, CfgVal], app_id: str, outcome: str
    ) -> Mapping[str, CfgVal] | None:
        """Return the options with an app's job added to ``depends_on``; None if Batch cannot do so.

        Batch supports only the outcome ``ok``, and no dependency on a child of an array job or on a
        missing app.

        Raises:
            AwsError: Batch cannot be queried.
        """
        job = self.find_job(app_id) if outcome == "ok" else None
        if job is None or child_index(job) is not None:
            return None
        given = cfg.get("depends_on")
        others = given if isinstance(given, list) else []
        return {**cfg, "depends_on": [*others, str(job["jobId"])]}

    def _log_of(
        self, app_id: str, job: Mapping[str, Any], role_name: str, k: int
    ) -> tuple[str, PollStreams]:
        index, container = find_node(job, role_name, k)

        def poll() -> tuple[float | None, list[str]]:
            # Followers of the same job share the requests. Request the job first: its description
            # must not be newer than the node's.
            job = self.find_job(app_id, POLL_PAUSES[0])
            if job is None:  # the job was deleted, or Batch has removed it
                return 0.0, []
            node = self.nodes(job, POLL_PAUSES[0]).get(index) or {}
            return ended_at(job, node), log_streams(node)

        return log_group(container), poll

    def submit_request(self, request: BatchJob) -> str:
        """Submit a job and return the app id.

        Raises:
            RequestError: The queue does not exist or does not accept the job, or a secret does not
                exist.
            AwsError: AWS refused the request or did not answer.
        """
        self._ids[request.app_id] = submit(self._clients, request)
        return request.app_id

    def _is_own(self, job: Mapping[str, Any]) -> bool:
        return TAG_TORCHX_VER in (job.get("tags") or {})

    def _describe_job(self, app_id: str, job: Mapping[str, Any]) -> DescribeAppResponse:
        return describe(app_id, job, self.nodes(job))

    def _end(self, job: Mapping[str, Any], reason: str = CANCELLED) -> None:
        if is_terminal(job_state(job)):
            return
        action = f"end the job {job['jobName']}"
        for pause in (*(_CREATION_PAUSES if child_index(job) is not None else ()), None):
            try:
                # TerminateJob also cancels a job that has not started.
                self._call("terminate_job", action, jobId=job["jobId"], reason=reason)
                return
            except AwsError as e:
                if pause is None or not is_client_error(e):
                    raise
                time.sleep(pause)

    def delete(self, app_id: str) -> None:
        """End an app's job and tag it as deleted. A missing app is not an error.

        Deregister the job definition if no other job uses it. Batch itself removes jobs only days
        after their end.
        """
        job = self._find_own(app_id, "delete")
        if job is None:
            return
        self._end(job, DELETED)
        whole = job if child_index(job) is None else self._mark_child_as_deleted(job)
        if whole is None:  # the array job has other children
            return
        action = f"mark {app_id} as deleted"
        tags = {TAG_DELETED: "true"}
        self._call("tag_resource", action, resourceArn=whole["jobArn"], tags=tags)
        definition = str(whole["jobDefinition"])
        try:
            is_used = self._is_definition_used(definition, str(whole["jobId"]))
        except AccessDeniedError:  # without the permission to list jobs, keep the definition
            return
        if not is_used:
            # Another client may have deregistered the definition.
            action = f"deregister the job definition {definition}"
            self._call(
                "deregister_job_definition", action, is_client_error, jobDefinition=definition
            )

    def _find_job(self, app_id: str) -> dict[str, Any] | None:
        """Return the job of an app, or None if the job is missing or deleted.

        If several jobs of the queue have the name in the app id, prefer the newest one that TorchX
        submitted.
        """
        base, index = split_element_id(app_id)
        job_id = self._ids.get(base) or self._search(base)
        if job_id is None:
            return None
        ids = [job_id] if index is None else [job_id, f"{job_id}:{index}"]
        found = self.described(ids)
        job = found.get(job_id)
        if job is None or was_deleted(job):
            return None
        self._ids[base] = job_id
        if index is None:
            return job
        child = found.get(ids[1])
        return child_job(job if child else self._with_container(job), child, index)

    def _with_container(self, array: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an array job; add the container of its definition if the job has no container."""
        if (array.get("container") or {}).get("command"):
            return array
        arn = array["jobDefinition"]
        action = f"describe the job definition {arn}"
        found = self._call("describe_job_definitions", action, is_denied, jobDefinitions=[arn])
        if found is None:
            return array
        return {**array, "container": found["jobDefinitions"][0]["containerProperties"]}

    def children(self, array: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a description of each child of an array job, except for deleted children."""
        indices = sorted(set(range(array_size(array))) - deleted_children(array))
        ids = [f"{array['jobId']}:{index}" for index in indices]
        found = self.described(ids)
        if len(found) < len(ids):  # Batch has not created all children yet
            array = self._with_container(array)
        for index, job_id in zip(indices, ids, strict=True):
            if child := child_job(array, found.get(job_id), index):
                yield child

    def _mark_child_as_deleted(self, child: Mapping[str, Any]) -> dict[str, Any] | None:
        """Mark a child as deleted, by a tag of its array job.

        Args:
            child: The child, as :meth:`find_job` returns it.

        Returns:
            The array job if all its children are deleted; else None.
        """
        job_id, index = str(child["jobId"]).rpartition(":")[0], child_index(child)
        for _ in range(_TAG_ATTEMPTS):
            array = self.described([job_id]).get(job_id)
            if array is None or index is None:
                return None
            deleted = deleted_children(array)
            if index in deleted:
                return array if len(deleted) == array_size(array) else None
            # Another client may change the tag at the same time, so the next iteration checks it.
            self._call(
                "tag_resource",
                f"mark {child['jobName']} as deleted",
                resourceArn=array["jobArn"],
                tags={TAG_DELETED_CHILDREN: deleted_tag(deleted | {index})},
            )
        return None

    def described(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the descriptions of jobs and nodes by id; unknown ids are left out."""
        found = {}
        for start in range(0, len(ids), MAX_DESCRIBED):
            chunk = list(ids[start : start + MAX_DESCRIBED])
            answer = self._call("describe_jobs", f"describe the job {chunk[0]}", jobs=chunk)
            found.update({str(job["jobId"]): job for job in answer["jobs"]})
        return found

    def nodes(self, job: Mapping[str, Any], max_age: float = 0.0) -> dict[int, dict[str, Any]]:
        """Return the descriptions of a job's started nodes, by index.

        A job that is not a multi-node job counts as its node 0, even before it starts. Concurrent
        callers share the requests.

        Args:
            job: The job, as :meth:`find_job` returns it.
            max_age: Maximum age of cached descriptions, in seconds.
        """
        if not job.get("nodeProperties"):
            return {0: dict(job)}
        if job.get("status") in WAITING and not job.get("attempts"):
            return {}
        count = job["nodeProperties"]["numNodes"]
        ids = {f"{job['jobId']}#{index}": index for index in range(count)}

        def describe_nodes(_: object) -> dict[int, dict[str, Any]]:
            found = self.described(list(ids))
            return {ids[node_id]: node for node_id, node in found.items() if node_id in ids}

        return self._nodes.get(str(job["jobId"]), describe_nodes, max_age) or {}

    def _search(self, app_id: str) -> str | None:
        parsed = _APP_ID.fullmatch(app_id)
        if parsed is None:
            return None
        queue, name = parsed.groups()
        query = {"name": "JOB_NAME", "values": [name]}
        # Without the queue, there are no jobs.
        jobs = self._summaries(queue, query, is_client_error)
        ids = [str(job["jobId"]) for job in jobs if job["jobName"] == name]
        if len(ids) > 1:
            own = {job_id for job_id, job in self.described(ids).items() if self._is_own(job)}
            ids = [job_id for job_id in ids if job_id in own] or ids
        return ids[0] if ids else None

    def _summaries(
        self,
        queue: str,
        query: dict[str, Any],
        expected: Callable[[AwsError], bool] | None = None,
    ) -> Iterator[Mapping[str, Any]]:
        return self._items(
            "list_jobs",
            "jobSummaryList",
            f"list the jobs of the queue {queue}",
            expected,
            jobQueue=queue,
            filters=[query],
        )

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the jobs that TorchX submitted, grouped by queue, the newest of a queue first.

        Batch keeps jobs for a week or longer after their end. The children of an array job take its
        place. ``ListJobs`` returns no tags, so this method describes the jobs whose definition has
        a name that TorchX gives, a hundred at a time.

        Args:
            cfg: The options; with ``queue``, list only the jobs of that queue.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        if cfg and cfg.get("queue"):
            names = [queue_name(str(cfg["queue"]))]
        else:
            names = [str(queue["jobQueueName"]) for queue in list_queues(self._clients)]

        def list_queue(queue: str) -> list[ListAppResponse]:
            # Without a filter, ListJobs returns the jobs of a single state.
            query = {"name": "AFTER_CREATED_AT", "values": ["1"]}
            found: list[ListAppResponse] = []
            candidates = (
                job
                for job in self._summaries(queue, query)
                if _may_be_own(job) and job.get("statusReason") != DELETED
            )
            while jobs := list(islice(candidates, MAX_DESCRIBED)):
                described = self.described([str(job["jobId"]) for job in jobs])
                for whole in (described.get(str(job["jobId"]), {}) for job in jobs):
                    if self._is_own(whole) and not was_deleted(whole):
                        parts = self.children(whole) if array_size(whole) else [whole]
                        found += [self._list_item(queue, part) for part in parts]
            return found

        with ThreadPoolExecutor(PARALLEL_QUEUES) as pool:
            return [job for jobs in pool.map(list_queue, names) for job in jobs]

    def _list_item(self, queue: str, job: Mapping[str, Any]) -> ListAppResponse:
        # The first node decides the state of a multi-node job; the others are not queried.
        described = describe(f"{queue}:{job['jobName']}", job, {0: job})
        return self._listed(described, described.metadata[TAG_TORCHX_APPNAME])

    def _is_definition_used(self, definition: str, job_id: str) -> bool:
        """Return whether any job uses a job definition, except deleted jobs and the job ``job_id``.

        Args:
            definition: ARN of the job definition.
            job_id: Batch's id of the job to leave out.

        Raises:
            AwsError: AWS refused the request or did not answer.
        """
        query = {"name": "JOB_DEFINITION", "values": [definition]}
        for queue in list_queues(self._clients):
            ids = [
                str(job["jobId"])
                for job in self._summaries(str(queue["jobQueueName"]), query)
                if job.get("jobDefinition") == definition and job["jobId"] != job_id
            ]
            if not all(map(was_deleted, self.described(ids).values())):
                return True
        return False


def _may_be_own(job: Mapping[str, Any]) -> bool:
    """Return whether the name of a job's definition is one that TorchX gives.

    Upstream's TorchX gives a job and its job definition the same name.
    """
    definition = definition_name(job)
    return definition.startswith(DEFINITION_PREFIX) or definition == job.get("jobName")
