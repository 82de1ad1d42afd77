"""The double of AWS Batch: queues, job definitions, and jobs whose nodes are processes.

It implements this documented behavior: A job passes the statuses from SUBMITTED to SUCCEEDED or
FAILED. The main node starts first, and the child nodes start when it runs. The main node alone
decides how a multi-node job ends and whether it is retried. When the main node has ended, the child
nodes are stopped, after a short delay (``child_notice``) in which they may end by themselves.

An array job has the statuses SUBMITTED, PENDING, FAILED and SUCCEEDED. It succeeds if all children
succeed. Its children have the ids ``<id>:<index>``, and no tags; ListJobs does not return them. The
documentation does not say whether an array job has the field ``container``; the double leaves it
out.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aws_double_definitions import (
    NAME,
    SUBMISSION_BYTES,
    apply_override,
    check_definition,
    check_retries,
    check_timeout,
    is_retried,
    node_containers,
    refuse,
)
from aws_double_logs import Logs
from aws_double_process import ContainerProcess, StartError
from aws_double_secrets import SecretsManager
from aws_double_wire import Call, now_ms, page

ACCOUNT = "123456789012"
LOG_GROUP = "/aws/batch/job"
MAIN_ADDRESS = "127.0.0.1"
_ENDED = ("SUCCEEDED", "FAILED")


@dataclass
class Queue:
    """A job queue.

    Args:
        name: Name of the queue.
        state: ``ENABLED`` or ``DISABLED``.
        slots: Number of nodes that run at the same time; 0 keeps every job RUNNABLE.
        reason: Status reason of waiting jobs.
        region: Region in the queue's ARN.
        kind: Type of the instances: ``EC2``, ``SPOT``, ``FARGATE``, ``EKS`` or ``UNMANAGED``.
    """

    name: str
    state: str = "ENABLED"
    slots: int = 1_000_000
    reason: str = ""
    region: str = "us-east-1"
    kind: str = "EC2"
    used: int = 0

    @property
    def arn(self) -> str:
        return f"arn:aws:batch:{self.region}:{ACCOUNT}:job-queue/{self.name}"


@dataclass
class _Node:
    """A node of a job, which is one container."""

    index: int
    container: dict[str, Any]
    status: str = "SUBMITTED"
    reason: str = ""
    started: int = 0
    stopped: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    process: ContainerProcess | None = None


@dataclass
class _Job:
    id: str
    name: str
    queue: Queue
    definition: dict[str, Any]
    nodes: list[_Node]
    multinode: bool
    main: int = 0
    created: int = 0
    started: int = 0
    stopped: int = 0
    status: str = "SUBMITTED"
    reason: str = ""
    retries: dict[str, Any] = field(default_factory=dict)
    timeout: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    depends_on: list[dict[str, str]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    terminated: bool = False
    ending: str = ""
    retried_by_service: bool = False
    children: list[_Job] = field(default_factory=list)
    index: int | None = None
    size: int = 0

    @property
    def arn(self) -> str:
        return f"arn:aws:batch:{self.queue.region}:{ACCOUNT}:job/{self.id}"


class Batch:
    """The double of Batch; methods with the name of an operation answer its requests.

    Attributes:
        pace: How long a job stays in each status, in seconds.
        child_notice: How long child nodes may run after the end of the main node, in seconds.
        grace: How long a container may take to stop before it is killed, in seconds.
        timeout_scale: Length of one second of a job's timeout, in seconds.
        missing_images: Images that cannot be pulled.
        refused_roles: IAM roles that cannot be assumed.
    """

    def __init__(self, logs: Logs, secrets: SecretsManager) -> None:
        self.pace = 0.02
        self.child_notice = 5.0
        self.grace = 2.0
        self.timeout_scale = 1.0
        self.missing_images: set[str] = set()
        self.refused_roles: set[str] = set()
        self._logs = logs
        self._secrets = secrets
        self._changed = threading.Condition(threading.RLock())
        self._queues: dict[str, Queue] = {}
        self._definitions: dict[str, list[dict[str, Any]]] = {}
        self._jobs: dict[str, _Job] = {}
        self._closed = False

    def add_queue(self, name: str, **fields: Any) -> Queue:
        """Create a queue."""
        queue = self._queues[name] = Queue(name, **fields)
        return queue

    def fill(self, queue: str, count: int, definition_name: str = "filled", **fields: Any) -> None:
        """Add ended jobs to a queue, with the tag of TorchX's jobs unless ``tags`` is given.

        Args:
            queue: Name of the queue.
            count: Number of jobs.
            definition_name: Name of the jobs' definition.
            fields: Values of other fields of the jobs, such as ``tags`` and ``status``.
        """
        container = {"image": "filled", "resourceRequirements": []}
        arn = f"arn:aws:batch:us-east-1:{ACCOUNT}:job-definition/{definition_name}:1"
        definition = {
            "jobDefinitionName": definition_name,
            "jobDefinitionArn": arn,
            "revision": 1,
            "status": "ACTIVE",
            "type": "container",
            "containerProperties": container,
        }
        self._definitions.setdefault(definition_name, [definition])
        for i in range(count):
            job = _Job(
                id=str(uuid.uuid4()),
                name=f"{queue}-filled-{i}",
                queue=self._queues[queue],
                definition=definition,
                nodes=[_Node(0, container, status="SUCCEEDED")],
                multinode=False,
                created=now_ms() - 60_000,
                status="SUCCEEDED",
                tags={"torchx.pytorch.org/version": "0.1"},
            )
            for key, value in fields.items():
                setattr(job, key, copy.copy(value))
            self._jobs[job.id] = job

    def reclaim(self, name: str) -> None:
        """Reclaim the instance of a running job's main node, as EC2 does with spot instances."""
        job, process = self._main_process(name)
        job.retried_by_service = True
        process.stop(0)

    def stop_container(self, name: str) -> None:
        """Stop the container of a running job's main node, as the agent of ECS can."""
        self._main_process(name)[1].stop(self.grace)

    def _main_process(self, name: str) -> tuple[_Job, ContainerProcess]:
        with self._changed:
            job = next(j for j in self._jobs.values() if j.name == name and j.status == "RUNNING")
            process = job.nodes[job.main].process
        assert process is not None
        return job, process

    def close(self) -> None:
        """Stop all jobs."""
        self._closed = True
        with self._changed:
            processes = [node.process for job in self._jobs.values() for node in job.nodes]
            for job in self._jobs.values():
                job.ending = job.ending or "the double ends"
            self._changed.notify_all()
        for process in processes:
            if process is not None:
                process.stop(0)

    def DescribeJobQueues(self, call: Call) -> dict[str, Any]:  # noqa: N802 - the operation's name
        wanted = call.params.get("jobQueues")
        queues = list(self._queues.values())
        if wanted:
            queues = [queue for queue in queues if queue.name in wanted or queue.arn in wanted]
        part, token = page(queues, call.params.get("nextToken"), call.params.get("maxResults", 100))
        return {"jobQueues": [_described_queue(queue) for queue in part], "nextToken": token}

    def DescribeComputeEnvironments(self, call: Call) -> dict[str, Any]:  # noqa: N802
        wanted = call.params.get("computeEnvironments") or ()
        found = map(_described_environment, self._queues.values())
        return {
            "computeEnvironments": [
                item for item in found if not wanted or item["computeEnvironmentArn"] in wanted
            ]
        }

    def _queue(self, name: str) -> Queue:
        for queue in self._queues.values():
            if name in (queue.name, queue.arn):
                return queue
        raise refuse(f"Job Queue {name} not found")

    def RegisterJobDefinition(self, call: Call) -> dict[str, Any]:  # noqa: N802
        check_definition(call.params)
        name = call.params["jobDefinitionName"]
        with self._changed:
            revisions = self._definitions.setdefault(name, [])
            revision = len(revisions) + 1
            arn = f"arn:aws:batch:{call.region}:{ACCOUNT}:job-definition/{name}:{revision}"
            revisions.append(
                {
                    **copy.deepcopy(call.params),
                    "jobDefinitionArn": arn,
                    "revision": revision,
                    "status": "ACTIVE",
                    "containerOrchestrationType": "ECS",
                }
            )
        return {"jobDefinitionName": name, "jobDefinitionArn": arn, "revision": revision}

    def DescribeJobDefinitions(self, call: Call) -> dict[str, Any]:  # noqa: N802
        params = call.params
        with self._changed:
            found = [d for revisions in self._definitions.values() for d in reversed(revisions)]
        if "jobDefinitions" in params:
            found = [d for d in found if d["jobDefinitionArn"] in params["jobDefinitions"]]
        else:
            wanted = (params["jobDefinitionName"], params["status"])
            found = [d for d in found if (d["jobDefinitionName"], d["status"]) == wanted]
        part, token = page(found, params.get("nextToken"), 100)
        return {"jobDefinitions": part, "nextToken": token}

    def DeregisterJobDefinition(self, call: Call) -> dict[str, Any]:  # noqa: N802
        with self._changed:
            self._definition(call.params["jobDefinition"], exactly=True)["status"] = "INACTIVE"
        return {}

    def _definition(self, name: str, exactly: bool = False) -> dict[str, Any]:
        short = name.rpartition("/")[2]
        base, _, revision = short.partition(":")
        found = [
            d
            for d in reversed(self._definitions.get(base, []))
            if d["status"] == "ACTIVE" and (not revision or str(d["revision"]) == revision)
        ]
        if not found or (exactly and not revision):
            raise refuse(f"Job definition {name} not found or not active")
        return found[0]

    def SubmitJob(self, call: Call) -> dict[str, Any]:  # noqa: N802
        params = call.params
        if len(json.dumps(params).encode()) > SUBMISSION_BYTES:
            raise refuse("The request exceeds the maximum of 30 KiB")
        if not NAME.match(params["jobName"]):
            raise refuse(f"jobName is invalid: {params['jobName']:.200}")
        check_retries(params.get("retryStrategy"))
        check_timeout(params.get("timeout"))
        size = params.get("arrayProperties", {}).get("size")
        if "arrayProperties" in params and not (isinstance(size, int) and 2 <= size <= 10_000):
            raise refuse(f"arrayProperties.size is between 2 and 10000, not {size}")
        with self._changed:
            queue = self._queue(params["jobQueue"])
            if queue.state != "ENABLED":
                raise refuse(f"Job Queue {queue.arn} is not ENABLED")
            definition = copy.deepcopy(self._definition(params["jobDefinition"]))
            multinode = definition["type"] == "multinode"
            if multinode:
                if size:
                    raise refuse("arrayProperties can't be used with a multinode job")
                if "containerOverrides" in params:
                    raise refuse("containerOverrides can't be used with a multinode job")
                properties = definition["nodeProperties"]
                if queue.kind not in ("EC2", "EKS"):
                    raise refuse(f"multinode jobs don't run on {queue.kind} compute environments")
                containers = node_containers(properties, params.get("nodeOverrides"))
            else:
                if "nodeOverrides" in params:
                    raise refuse("nodeOverrides need a multinode job")
                containers = [copy.deepcopy(definition["containerProperties"])]
                apply_override(containers[0], params.get("containerOverrides", {}))
            job = _Job(
                id=str(uuid.uuid4()),
                name=params["jobName"],
                queue=queue,
                definition=definition,
                nodes=[_Node(i, container) for i, container in enumerate(containers)],
                multinode=multinode,
                main=definition["nodeProperties"]["mainNode"] if multinode else 0,
                created=now_ms(),
                retries=params.get("retryStrategy") or definition.get("retryStrategy", {}),
                timeout=params.get("timeout") or definition.get("timeout", {}),
                tags=dict(params.get("tags", {})),
                depends_on=params.get("dependsOn", []),
            )
            job.size = size or 0
            self._jobs[job.id] = job
        target = self._run_array if size else self._run
        threading.Thread(target=target, args=(job,), daemon=True).start()
        return {"jobArn": job.arn, "jobName": job.name, "jobId": job.id}

    def DescribeJobs(self, call: Call) -> dict[str, Any]:  # noqa: N802
        wanted = call.params["jobs"]
        if not 1 <= len(wanted) <= 100:
            raise refuse(f"jobs has between 1 and 100 ids, not {len(wanted)}")
        found = []
        with self._changed:
            for text in wanted:
                identity, hash_sign, index = text.rpartition("/")[2].partition("#")
                job = self._jobs.get(identity)
                if job is None:
                    continue
                if not hash_sign:
                    found.append(_described_job(job))
                elif job.multinode and index.isdigit() and int(index) < len(job.nodes):
                    found.append(_described_node(job, job.nodes[int(index)]))
            return {"jobs": copy.deepcopy(found)}

    def ListJobs(self, call: Call) -> dict[str, Any]:  # noqa: N802
        params = call.params
        filters = params.get("filters", [])
        if len(filters) > 1:
            raise refuse("only one filter can be used")
        with self._changed:
            queue = self._queue(params["jobQueue"])
            jobs = [job for job in self._jobs.values() if job.queue is queue and job.index is None]
            jobs.sort(key=lambda job: job.created, reverse=True)
            if filters:
                jobs = [job for job in jobs if _passes(job, filters[0])]
            else:  # then, Batch lists running jobs
                jobs = [job for job in jobs if job.status == "RUNNING"]
            found = [_listed(job) for job in jobs]
        part, token = page(found, params.get("nextToken"), 100)
        return {"jobSummaryList": part, "nextToken": token}

    def TerminateJob(self, call: Call) -> dict[str, Any]:  # noqa: N802
        with self._changed:
            array = self._job(call.params["jobId"])
            for job in (array, *array.children):
                if job.status not in _ENDED:
                    job.terminated = True
                    job.ending = call.params["reason"]
            self._changed.notify_all()
        return {}

    def _job(self, name: str) -> _Job:
        job = self._jobs.get(name.rpartition("/")[2].partition("#")[0])
        if job is None:
            raise refuse(f"Job {name} does not exist")
        return job

    def TagResource(self, call: Call) -> dict[str, Any]:  # noqa: N802
        self._tags(call.params["resourceArn"]).update(call.params["tags"])
        return {}

    def _tags(self, arn: str) -> dict[str, str]:
        if ":job-definition/" in arn:
            tags: dict[str, str] = self._definition(arn).setdefault("tags", {})
            return tags
        job = self._job(arn)
        if job.index is not None:
            raise refuse(f"{arn} is a child of an array job")
        return job.tags

    def _run_array(self, job: _Job) -> None:
        """Run the children of an array job, and set the array job's status when they have ended."""
        with contextlib.suppress(_EndedEarlyError):
            self._pause(job)
        container = job.nodes[0].container
        with self._changed:
            job.children = [
                dataclasses.replace(
                    job,
                    id=f"{job.id}:{index}",
                    nodes=[_Node(0, copy.deepcopy(container))],
                    tags={},
                    attempts=[],
                    created=now_ms(),
                    status="PENDING",
                    children=[],
                    index=index,
                    size=0,
                )
                for index in range(job.size)
            ]
            self._jobs.update({child.id: child for child in job.children})
            job.status = "PENDING"
        for child in job.children:
            threading.Thread(target=self._run, args=(child,), daemon=True).start()
        with self._changed:
            while any(child.status not in _ENDED for child in job.children) and not self._closed:
                self._changed.wait(0.1)
            has_failed = any(child.status == "FAILED" for child in job.children)
            job.reason = job.ending or ("Array Child Job failed" if has_failed else "")
            job.stopped = now_ms()
            job.status = "FAILED" if has_failed else "SUCCEEDED"
            self._changed.notify_all()

    def _run(self, job: _Job) -> None:
        try:
            if job.depends_on:
                self._to(job, "PENDING")
                self._wait_for_others(job)
            for attempt in itertools.count(1):
                self._to(job, "RUNNABLE", job.queue.reason)
                with self._slots(job):
                    self._to(job, "STARTING")
                    self._pause(job)
                    succeeded = self._attempt(job, attempt)
                main = job.nodes[job.main]
                code, why = main.details.get("exitCode"), main.details.get("reason", "")
                if succeeded or job.ending:
                    break
                if not is_retried(job.retries, attempt, code, why, main.reason):
                    break
                for node in job.nodes:
                    node.status, node.details, node.reason = "RUNNABLE", {}, ""
            self._finish(job, "SUCCEEDED" if succeeded and not job.ending else "FAILED")
        except _EndedEarlyError:
            self._finish(job, "FAILED")

    def _to(self, job: _Job, status: str, reason: str = "") -> None:
        """Set the status of a job and its nodes, after a pause in the previous status."""
        self._pause(job)
        with self._changed:
            job.status, job.reason = status, reason
            for node in job.nodes:
                node.status = status

    def _pause(self, job: _Job) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(job.ending), self.pace)
            if job.ending:
                raise _EndedEarlyError

    def _wait_for_others(self, job: _Job) -> None:
        with self._changed:
            while True:
                others = [self._jobs.get(item.get("jobId", "")) for item in job.depends_on]
                if any(other is None or other.status == "FAILED" for other in others):
                    job.ending = "Dependent Job failed"
                if job.ending:
                    raise _EndedEarlyError
                if all(other is not None and other.status == "SUCCEEDED" for other in others):
                    return
                self._changed.wait(0.05)

    @contextlib.contextmanager
    def _slots(self, job: _Job) -> Iterator[None]:
        queue, count = job.queue, len(job.nodes)
        with self._changed:
            while queue.used + count > queue.slots:
                if job.ending:
                    raise _EndedEarlyError
                self._changed.wait(0.1)
            queue.used += count
        try:
            yield
        finally:
            with self._changed:
                queue.used -= count
                self._changed.notify_all()

    def _attempt(self, job: _Job, attempt: int) -> bool:
        """Run all nodes once; return whether the main node succeeded."""
        main = job.nodes[job.main]
        children = [node for node in job.nodes if node is not main]
        began = now_ms()
        if self._start(job, main, attempt):
            with self._changed:
                job.status = "RUNNING"
                job.started = main.started
            for node in children:
                self._start(job, node, attempt)
            self._until_ended(job, main)
        self._end_children(job, children)
        for node in job.nodes:
            self._note_end(job, node, main)
        with self._changed:
            job.stopped = main.stopped
            job.attempts.append(_attempted(main, began))
            for node in job.nodes:
                node.attempts.append(_attempted(node, began))
        return main.status == "SUCCEEDED"

    def _start(self, job: _Job, node: _Node, attempt: int) -> bool:
        prefix, group = _log_place(job, node)
        task = uuid.uuid4().hex
        stream = f"{prefix}/{task}"
        details = {
            "taskArn": f"arn:aws:ecs:{job.queue.region}:{ACCOUNT}:task/double/{task}",
            "logStreamName": stream,
        }
        process = None
        try:
            self._check_start(node)
            secrets = self._secrets.variables(job.queue.region, node.container)
            self._logs.create(group, stream)
            process = ContainerProcess(
                node.container.get("command", []),
                {**_environment(job, node, attempt), **secrets},
                lambda line: self._logs.put(group, stream, line),
            )
        except (StartError, LookupError) as e:
            details["reason"] = str(e)
        with self._changed:
            node.details = details
            node.process = process
            if process is None:
                node.status, node.reason = "FAILED", "Task failed to start"
                node.stopped = now_ms()
            else:
                node.status, node.started = "RUNNING", now_ms()
            self._changed.notify_all()
        if process is not None and self._closed:
            process.stop(0)
        return process is not None

    def _check_start(self, node: _Node) -> None:
        container = node.container
        for key in ("executionRoleArn", "jobRoleArn"):
            if container.get(key) in self.refused_roles:
                raise StartError(f"ECS was unable to assume the role '{container[key]}'")
        if container["image"] in self.missing_images:
            raise StartError(
                "CannotPullContainerError: Error response from daemon: pull access denied for"
                f" {container['image']}, repository does not exist or may require 'docker login'"
            )

    def _until_ended(self, job: _Job, main: _Node) -> None:
        assert main.process is not None
        limit = job.timeout.get("attemptDurationSeconds")
        deadline = time.monotonic() + limit * self.timeout_scale if limit else float("inf")
        while not main.process.ended.wait(0.01):
            if job.ending:
                main.process.stop(self.grace)
            elif time.monotonic() > deadline:
                main.process.stop(self.grace)
                main.reason = "Job attempt duration exceeded timeout"

    def _end_children(self, job: _Job, children: list[_Node]) -> None:
        deadline = time.monotonic() + (0 if job.ending else self.child_notice)
        for node in children:
            if node.process is not None:
                node.process.ended.wait(max(0.0, deadline - time.monotonic()))
        stopping = []
        for node in children:
            if node.process is not None and not node.process.ended.is_set():
                node.reason = "Stopped: the main node has ended"
                stopping.append(threading.Thread(target=node.process.stop, args=(self.grace,)))
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def _note_end(self, job: _Job, node: _Node, main: _Node) -> None:
        process = node.process
        if process is None or not process.ended.is_set():
            if node is not main and node.status not in _ENDED:
                node.status, node.reason = "FAILED", "the main node did not start"
                node.stopped = now_ms()
            return
        with self._changed:
            node.details["exitCode"] = process.exit_code
            node.stopped = now_ms()
            node.status = "SUCCEEDED" if process.exit_code == 0 else "FAILED"
            if job.ending:
                node.status, node.reason = "FAILED", job.ending
            elif node is main and job.retried_by_service:
                node.reason = "Host EC2 (instance i-0123456789abcdef0) terminated."
                job.retried_by_service = False
            elif not node.reason:
                node.reason = "Essential container in task exited"
            node.process = None

    def _finish(self, job: _Job, status: str) -> None:
        with self._changed:
            job.reason = job.ending or job.nodes[job.main].reason
            job.stopped = job.stopped or now_ms()
            for node in job.nodes:
                if node.status not in _ENDED:
                    node.status, node.reason, node.stopped = "FAILED", job.reason, now_ms()
            job.status = status
            self._changed.notify_all()


class _EndedEarlyError(Exception):
    """The job was cancelled or terminated before it ran."""


def _passes(job: _Job, given: dict[str, Any]) -> bool:
    values = given.get("values", [])
    name = given.get("name")
    if name == "JOB_NAME":
        return any(_starts(job.name, value) for value in values)
    if name == "JOB_DEFINITION":
        arn = job.definition["jobDefinitionArn"]
        return any(_starts(arn.rpartition("/")[2], value) or arn == value for value in values)
    if name == "AFTER_CREATED_AT":
        return job.created > int(values[0])
    raise refuse(f"no such filter: {name}")


def _starts(text: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return text.lower().startswith(pattern[:-1].lower())
    return text.lower() == pattern.lower()


def _environment(job: _Job, node: _Node, attempt: int) -> dict[str, str]:
    environment = {
        # Batch drops variables with an empty value.
        item["name"]: item["value"]
        for item in node.container.get("environment", ())
        if item.get("value")
    }
    own = {
        "AWS_BATCH_JOB_ID": f"{job.id}#{node.index}" if job.multinode else job.id,
        "AWS_BATCH_JOB_ATTEMPT": str(attempt),
        "AWS_BATCH_JQ_NAME": job.queue.name,
        "AWS_BATCH_CE_NAME": "double",
    }
    if job.index is not None:
        own["AWS_BATCH_JOB_ARRAY_INDEX"] = str(job.index)
    if job.multinode:
        own |= {
            "AWS_BATCH_JOB_NODE_INDEX": str(node.index),
            "AWS_BATCH_JOB_MAIN_NODE_INDEX": str(job.main),
            "AWS_BATCH_JOB_NUM_NODES": str(len(job.nodes)),
        }
        if node.index != job.main:
            own["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = MAIN_ADDRESS
    return {**environment, **own}


def _log_place(job: _Job, node: _Node) -> tuple[str, str]:
    name = job.definition["jobDefinitionArn"].rpartition("/")[2].partition(":")[0]
    options = node.container.get("logConfiguration", {}).get("options", {})
    prefix = options.get("awslogs-stream-prefix", name[:200])
    return f"{prefix}/default", options.get("awslogs-group", LOG_GROUP)


def _attempted(node: _Node, began: int) -> dict[str, Any]:
    keys = ("exitCode", "reason", "logStreamName", "taskArn")
    return {
        "container": {key: node.details[key] for key in keys if key in node.details},
        "startedAt": node.started or began,
        "stoppedAt": node.stopped,
        "statusReason": node.reason,
    }


def _described_queue(queue: Queue) -> dict[str, Any]:
    return {
        "jobQueueName": queue.name,
        "jobQueueArn": queue.arn,
        "state": queue.state,
        "status": "VALID",
        "statusReason": "JobQueue Healthy",
        "priority": 1,
        "computeEnvironmentOrder": [
            {
                "order": 1,
                "computeEnvironment": _described_environment(queue)["computeEnvironmentArn"],
            }
        ],
        "jobQueueType": {"EKS": "EKS", "FARGATE": "ECS_FARGATE"}.get(queue.kind, "ECS"),
    }


def _described_environment(queue: Queue) -> dict[str, Any]:
    """Return the only compute environment of a queue."""
    prefix = f"arn:aws:batch:{queue.region}:{ACCOUNT}:compute-environment"
    found: dict[str, Any] = {
        "computeEnvironmentName": f"double-{queue.name}",
        "computeEnvironmentArn": f"{prefix}/double-{queue.name}",
        "ecsClusterArn": f"arn:aws:ecs:{queue.region}:{ACCOUNT}:cluster/double",
        "state": "ENABLED",
        "status": "VALID",
        "type": "UNMANAGED" if queue.kind == "UNMANAGED" else "MANAGED",
        "containerOrchestrationType": "EKS" if queue.kind == "EKS" else "ECS",
    }
    if queue.kind != "UNMANAGED":
        kind = "EC2" if queue.kind == "EKS" else queue.kind
        found["computeResources"] = {"type": kind, "maxvCpus": 64, "subnets": ["subnet-1"]}
    return found


def _array_properties(job: _Job) -> dict[str, Any]:
    if job.index is not None:
        return {"arrayProperties": {"index": job.index}}
    if not job.size:
        return {}
    summary: dict[str, int] = {}
    for child in job.children:
        summary[child.status] = summary.get(child.status, 0) + 1
    return {"arrayProperties": {"size": job.size, "statusSummary": summary}}


def _common(job: _Job) -> dict[str, Any]:
    return {
        "jobName": job.name,
        "jobQueue": job.queue.arn,
        "createdAt": job.created,
        "jobDefinition": job.definition["jobDefinitionArn"],
        "retryStrategy": job.retries or {"attempts": 1, "evaluateOnExit": []},
        "dependsOn": job.depends_on or None,
        "tags": job.tags or None,
        "platformCapabilities": [],
        "isTerminated": job.terminated,
        **_array_properties(job),
        **({"timeout": job.timeout} if job.timeout else {}),
    }


def _described_job(job: _Job) -> dict[str, Any]:
    found = {
        **_common(job),
        "jobId": job.id,
        "jobArn": job.arn,
        "status": job.status,
        "attempts": job.attempts,
        # the service model requires this field
        "startedAt": job.started,
    }
    if job.reason:
        found["statusReason"] = job.reason
    if job.status in _ENDED:
        found["stoppedAt"] = job.stopped
    if job.size:
        return found
    if not job.multinode:
        found["container"] = _described_container(job.nodes[0])
        return found
    groups = job.definition["nodeProperties"]["nodeRangeProperties"]
    found["nodeProperties"] = {
        **job.definition["nodeProperties"],
        "numNodes": len(job.nodes),
        "nodeRangeProperties": groups,
    }
    return found


def _described_node(job: _Job, node: _Node) -> dict[str, Any]:
    found = {
        **_common(job),
        "jobId": f"{job.id}#{node.index}",
        "jobArn": f"{job.arn}#{node.index}",
        "status": node.status,
        "attempts": node.attempts,
        "startedAt": node.started,
        "container": _described_container(node),
        "nodeDetails": {"nodeIndex": node.index, "isMainNode": node.index == job.main},
    }
    if node.reason:
        found["statusReason"] = node.reason
    if node.status in _ENDED:
        found["stoppedAt"] = node.stopped
    return found


def _described_container(node: _Node) -> dict[str, Any]:
    container = dict(node.container)
    if container.get("instanceType") == "":
        del container["instanceType"]
    return {**container, **node.details}


def _listed(job: _Job) -> dict[str, Any]:
    found: dict[str, Any] = {
        "jobId": job.id,
        "jobArn": job.arn,
        "jobName": job.name,
        "createdAt": job.created,
        "status": job.status,
        "statusReason": job.reason or None,
        "startedAt": job.started or None,
        "stoppedAt": job.stopped if job.status in _ENDED else None,
        "jobDefinition": job.definition["jobDefinitionArn"],
        "isTerminated": job.terminated,
    }
    found |= _array_properties(job)
    if job.multinode:
        found["nodeProperties"] = {"numNodes": len(job.nodes), "isMainNode": False}
    code = job.nodes[0].details.get("exitCode")
    if code is not None and not job.multinode:
        found["container"] = {"exitCode": code}
    return found
