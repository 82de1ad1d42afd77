"""Submitting a job: the queue looked at, the job definition registered if it is another one."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_sched_aws.batch.options import queue_name
from torchx_sched_aws.batch.request import BatchJob
from torchx_sched_aws.client import AccessDeniedError, AwsError, Clients, aws_errors
from torchx_specs.errors import RequestError, nearest

#: By this tag of a job definition it is seen whether the next one would be the same.
TAG_FINGERPRINT = "torchx.pytorch.org/fingerprint"

logger = logging.getLogger(__name__)


def submit(clients: Clients, job: BatchJob) -> str:
    """Submits a job and returns Batch's id of it.

    Raises:
        RequestError: the queue does not exist or does not take it
        AwsError: AWS refuses, or does not answer
    """
    check_queue(clients, job)
    definition = last_definition(clients, job) or register(clients, job)
    try:
        return _submit(clients, job, definition)
    except AwsError as e:
        if e.code != "ClientException" or "definition" not in str(e).lower():
            raise
        # somebody has deregistered it since we looked
        return _submit(clients, job, register(clients, job))


def check_queue(clients: Clients, job: BatchJob) -> None:
    """Checks that the queue takes the job.

    Raises:
        RequestError: it does not
    """
    name = queue_name(job.queue)
    try:
        with aws_errors(f"look at the queue {name}"):
            found = clients.client("batch").describe_job_queues(jobQueues=[job.queue])
    except AccessDeniedError as e:
        logger.debug("the queue is not checked: %s", e)
        return
    queues = found.get("jobQueues") or []
    if not queues:
        names = [queue["jobQueueName"] for queue in queues_of(clients)]
        have = ", ".join(names) or "(none)"
        raise RequestError(
            f"option queue: there is no job queue '{job.queue}' in {clients.region};"
            f"{nearest(name, names)} queues: {have}"
        )
    queue = queues[0]
    if queue.get("state") == "DISABLED":
        raise RequestError(f"option queue: the job queue '{name}' is disabled and takes no jobs")
    if queue.get("status") == "INVALID":
        why = queue.get("statusReason") or "no reason given"
        raise RequestError(f"option queue: the job queue '{name}' is not valid: {why}")
    if queue.get("schedulingPolicyArn") and job.share_id is None:
        raise RequestError(
            f"option share_id: the job queue '{name}' has a scheduling policy and needs one:"
            " -cfg share_id=NAME"
        )
    if job.share_id is not None and not queue.get("schedulingPolicyArn"):
        raise RequestError(
            f"option share_id: the job queue '{name}' has no scheduling policy and takes none"
        )


def queues_of(clients: Clients) -> Iterator[Mapping[str, Any]]:
    """Yields all job queues."""
    with aws_errors("list the job queues"):
        for page in clients.client("batch").get_paginator("describe_job_queues").paginate():
            yield from page["jobQueues"]


def last_definition(clients: Clients, job: BatchJob) -> str | None:
    """Returns the ARN of an active revision that is the same as the job's definition, if any."""
    name = job.job_def["jobDefinitionName"]
    wanted = fingerprint(job.job_def)
    try:
        with aws_errors(f"look at the job definition {name}"):
            pages = clients.client("batch").get_paginator("describe_job_definitions")
            for page in pages.paginate(jobDefinitionName=name, status="ACTIVE"):
                for found in page["jobDefinitions"]:
                    if (found.get("tags") or {}).get(TAG_FINGERPRINT) == wanted:
                        return str(found["jobDefinitionArn"])
    except AccessDeniedError as e:
        logger.debug("a new revision is registered: %s", e)
    return None


def register(clients: Clients, job: BatchJob) -> str:
    """Registers a revision of the job's definition and returns its ARN."""
    definition = dict(job.job_def)
    definition["tags"] = {
        **(definition.get("tags") or {}),
        TAG_FINGERPRINT: fingerprint(job.job_def),
    }
    name = definition["jobDefinitionName"]
    with aws_errors(f"register the job definition {name}"):
        registered = clients.client("batch").register_job_definition(**definition)
    return str(registered["jobDefinitionArn"])


def fingerprint(definition: Mapping[str, Any]) -> str:
    """Returns what identifies all of a job definition but its tags."""
    content = {key: value for key, value in definition.items() if key != "tags"}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _submit(clients: Clients, job: BatchJob, definition: str) -> str:
    with aws_errors(f"submit {job.name} to the queue {queue_name(job.queue)}"):
        submitted = clients.client("batch").submit_job(**job.submit_words(definition))
    return str(submitted["jobId"])
