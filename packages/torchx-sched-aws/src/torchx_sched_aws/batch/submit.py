"""Submission of a job: check the queue, find or register the job definition, submit."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchx_sched_aws.batch.options import queue_name
from torchx_sched_aws.batch.request import BatchJob, container_properties
from torchx_sched_aws.client import (
    AccessDeniedError,
    AwsError,
    Clients,
    announced,
    is_client_error,
    is_denied,
)
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.secrets import parse_secret

#: Tag with a digest of the job definition, so that an identical one is reused.
TAG_DIGEST = "torchx.pytorch.org/fingerprint"


def submit(clients: Clients, job: BatchJob) -> str:
    """Submit a job and return its Batch id.

    Raises:
        RequestError: The queue does not exist or does not accept the job, or a secret does not
            exist.
        AwsError: AWS refused the request or did not answer.
    """
    check_queue(clients, job)
    job = with_arns(clients, job)
    definition = find_registered_definition(clients, job) or register_definition(clients, job)
    try:
        return _submit(clients, job, definition)
    except AwsError as e:
        if not is_client_error(e) or "definition" not in str(e).lower():
            raise
        # The definition was deregistered in the meantime.
        return _submit(clients, job, register_definition(clients, job))


def check_queue(clients: Clients, job: BatchJob) -> None:
    """Raise an error unless the queue accepts the job.

    A check for which the user lacks the permission to describe the queue or its compute
    environments is left out.

    Raises:
        RequestError: The queue does not exist or does not accept the job.
        AwsError: AWS refused the request or did not answer.
    """
    name = queue_name(job.queue)
    action = f"describe the queue {name}"
    found = clients.call("batch", "describe_job_queues", action, is_denied, jobQueues=[job.queue])
    if found is None:
        return
    if not found["jobQueues"]:
        names = [queue["jobQueueName"] for queue in list_queues(clients)]
        region = clients.client("batch").meta.region_name
        raise RequestError(
            f"option queue: job queue '{job.queue}' does not exist in {region};"
            f"{nearest(name, names)} queues: {', '.join(names) or '(none)'}"
        )
    queue = found["jobQueues"][0]
    order = [item["computeEnvironment"] for item in queue.get("computeEnvironmentOrder") or ()]
    action = f"describe the compute environments of {name}"
    answer = order and clients.call(
        "batch", "describe_compute_environments", action, is_denied, computeEnvironments=order
    )
    environments = answer["computeEnvironments"] if answer else []
    problems = list(_queue_problems(queue, environments, job))
    if problems:
        raise RequestError(problems)


def _queue_problems(
    queue: Mapping[str, Any], environments: Sequence[Mapping[str, Any]], job: BatchJob
) -> Iterator[str]:
    """Yield why a queue does not accept a job, one line each."""
    name = f"job queue '{queue['jobQueueName']}'"
    policy = queue.get("schedulingPolicyArn")
    if queue.get("state") == "DISABLED":
        yield f"option queue: {name} is disabled and accepts no jobs"
    if queue.get("status") == "INVALID":
        reason = queue.get("statusReason") or "AWS gives no reason"
        yield f"option queue: {name} is invalid: {reason}"
    if policy and job.share_id is None:
        yield (
            f"option share_id: {name} has a scheduling policy and needs a share identifier:"
            " -cfg share_id=NAME"
        )
    if job.share_id is not None and not policy:
        yield f"option share_id: {name} has no scheduling policy; remove the option"
    kinds = {(item.get("computeResources") or {}).get("type") for item in environments}
    platforms = {item.get("containerOrchestrationType") for item in environments}
    queue_type = queue.get("jobQueueType")
    if queue_type == "EKS" or "EKS" in platforms:
        yield (
            f"option queue: {name} runs its jobs on Amazon EKS, for which TorchX's job definitions"
            " are not made; use a queue with EC2 instances, or -s kubernetes for the cluster itself"
        )
    elif queue_type == "ECS_FARGATE" or kinds & {"FARGATE", "FARGATE_SPOT"}:
        yield (
            f"option queue: {name} runs its jobs on Fargate, for which TorchX's job definitions are"
            " not made; use a queue with EC2 instances"
        )
    elif queue_type == "SAGEMAKER_TRAINING":
        yield (
            f"option queue: {name} runs SageMaker training jobs; use a queue with EC2 instances,"
            " or -s aws_sagemaker"
        )
    elif job.job_def["type"] == "multinode" and not _runs_multinode(environments):
        is_single = job.job_def["nodeProperties"]["numNodes"] == 1
        yield (
            f"option queue: {name} has only spot or unmanaged instances, on which AWS Batch runs no"
            " multi-node jobs; use a queue with managed on-demand instances"
            + (", or a resource without an instance type" if is_single else "")
        )


def _runs_multinode(environments: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether one of the compute environments may run multi-node jobs.

    The rules are in https://docs.aws.amazon.com/batch/latest/userguide/mnp-ce.html.
    """
    return not environments or any(
        item.get("type") != "UNMANAGED"
        and (item.get("computeResources") or {}).get("type") != "SPOT"
        for item in environments
    )


def list_queues(clients: Clients) -> Iterator[Mapping[str, Any]]:
    """Return an iterator over all job queues."""
    return clients.items("batch", "describe_job_queues", "jobQueues", "list the job queues")


def find_registered_definition(clients: Clients, job: BatchJob) -> str | None:
    """Return the ARN of an active revision equal to the job's definition.

    Return None if there is no such revision, or if the user may not describe job definitions.
    """
    name = job.job_def["jobDefinitionName"]
    wanted = definition_digest(job.job_def)
    definitions = clients.items(
        "batch",
        "describe_job_definitions",
        "jobDefinitions",
        f"describe the job definition {name}",
        is_denied,
        jobDefinitionName=name,
        status="ACTIVE",
    )
    for found in definitions:
        if (found.get("tags") or {}).get(TAG_DIGEST) == wanted:
            return str(found["jobDefinitionArn"])
    return None


def register_definition(clients: Clients, job: BatchJob) -> str:
    """Register a revision of the job's definition and return its ARN."""
    digest = {TAG_DIGEST: definition_digest(job.job_def)}
    definition = {**job.job_def, "tags": {**(job.job_def.get("tags") or {}), **digest}}
    name = definition["jobDefinitionName"]
    action = f"register the job definition {name}"
    registered = clients.call("batch", "register_job_definition", action, **definition)
    return str(registered["jobDefinitionArn"])


def definition_digest(definition: Mapping[str, Any]) -> str:
    """Return a digest of a job definition; it does not depend on the tags."""
    content = {key: value for key, value in definition.items() if key != "tags"}
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _submit(clients: Clients, job: BatchJob, definition: str) -> str:
    action = f"submit {job.name} to the queue {queue_name(job.queue)}"
    parameters = job.submit_parameters(definition)
    with announced(job.app_id):
        submitted = clients.call("batch", "submit_job", action, **parameters)
    return str(submitted["jobId"])


def with_arns(clients: Clients, job: BatchJob) -> BatchJob:
    """Return a job whose definition refers to secrets by their ARNs; ``job`` is not changed.

    AWS Batch would look up a name that is not an ARN in the Parameter Store.

    Raises:
        RequestError: A secret does not exist.
        AwsError: AWS refused the request or did not answer.
    """
    definition = copy.deepcopy(job.job_def)
    arns: dict[str, str] = {}
    problems = []
    for container in container_properties(definition):
        for item in container.get("secrets") or ():
            reference = parse_secret(str(item.get("valueFrom")))
            if reference is None:  # an item of the option secrets
                continue
            name, key = reference
            try:
                arn = arns[name] = arns.get(name) or _arn(clients, name)
            except RequestError as e:
                problems.append(f"env['{item['name']}']: {e}")
                continue
            item["valueFrom"] = arn if key is None else f"{arn}:{key}::"
    if problems:
        raise RequestError(problems)
    return replace(job, job_def=definition)


def _arn(clients: Clients, name: str) -> str:
    """Return the ARN of a secret.

    Raises:
        RequestError: The secret does not exist.
        AwsError: AWS refused the request or did not answer.
    """
    try:
        found = clients.call(
            "secretsmanager",
            "describe_secret",
            f"describe the secret {name}",
            lambda error: error.code == "ResourceNotFoundException",
            SecretId=name,
        )
    except AccessDeniedError as e:
        raise AccessDeniedError(
            f"{e}; without the permission secretsmanager:DescribeSecret, set the option secrets to"
            " VARIABLE:ARN, and remove the reference",
            e.code,
        ) from None
    if found is None or "DeletedDate" in found:
        raise RequestError(
            f"the secret '{name}' does not exist in Secrets Manager in"
            f" {clients.client('secretsmanager').meta.region_name}; create it"
            f" with: aws secretsmanager create-secret --name {name} --secret-string file://FILE"
        )
    return str(found["ARN"])
