"""The native request: a job definition, and what is said when it is submitted."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import AWS_BATCH, fit_name
from torchx_kit.yaml_text import yaml_text
from torchx_sched_aws.batch.checks import app_problems
from torchx_sched_aws.batch.command import make_command, replica_mark
from torchx_sched_aws.batch.container import (
    environment,
    instance_type,
    resource_requirements_from_resource,
    storage,
)
from torchx_sched_aws.batch.options import AWSBatchOpts, queue_name, rule, ulimit
from torchx_sched_aws.tags import make_tags
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.templates import RoleTemplate, macros
from torchx_specs.overlays import OverlaySpec, apply_overlay
from torchx_specs.redaction import masked

#: The variable with the index of the role within its app ...
ENV_TORCHX_ROLE_IDX = "TORCHX_ROLE_IDX"
#: ... and the one with its name.
ENV_TORCHX_ROLE_NAME = "TORCHX_ROLE_NAME"
#: The variable with the address of the first node; Batch sets it on all others.
ENV_MAIN_NODE = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
#: How the names of our job definitions begin.
DEFINITION_PREFIX = "torchx-"

LARGEST_DEFINITION = 24 * 1024
LARGEST_SUBMISSION = 30 * 1024
LARGEST_OVERRIDES = 8192

_OWN_VARIABLES = (ENV_TORCHX_ROLE_IDX, ENV_TORCHX_ROLE_NAME)
#: Variables that are another one in every run; in a job definition they would make it another one.
_VARYING = "TORCHX_"

CONTAINER_OVERLAY = OverlaySpec("aws_batch", "Container", ("command", "environment", "image"))
DEFINITION_OVERLAY = OverlaySpec("aws_batch", "JobDefinition", ("jobDefinitionName", "type"))
SUBMISSION_OVERLAY = OverlaySpec("aws_batch", "SubmitJob", ("jobName", "jobQueue", "jobDefinition"))

logger = logging.getLogger(__name__)


@dataclass
class BatchJob:
    """A job.

    Args:
        name: its name, unique
        queue: its queue
        share_id: its share of the queue, None if the queue has no scheduling policy
        job_def: what ``RegisterJobDefinition`` gets
        images_to_push: kept for older code
        submission: what ``SubmitJob`` gets beside names: tags, overrides ...
    """

    name: str
    queue: str
    share_id: str | None
    job_def: dict[str, Any]
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    submission: dict[str, Any] = field(default_factory=dict)

    def submit_words(self, definition: str) -> dict[str, Any]:
        """Returns all that ``SubmitJob`` gets.

        Args:
            definition: the job definition to use, name or ARN
        """
        words: dict[str, Any] = {
            "jobName": self.name,
            "jobQueue": self.queue,
            "jobDefinition": definition,
            **self.submission,
        }
        if self.share_id is not None:
            words["shareIdentifier"] = self.share_id
        return words

    @property
    def app_id(self) -> str:
        """The app's id."""
        return f"{queue_name(self.queue)}:{self.name}"

    def __str__(self) -> str:
        return format_request(self)


def make_request(app: AppDef, opts: AWSBatchOpts) -> BatchJob:
    """Returns the request for an app; contacts nobody.

    Raises:
        RequestError: names everything that Batch could not do
    """
    problems = list(app_problems(app, opts))
    tags: dict[str, str] = {}
    try:
        tags = make_tags(app.name, opts.user, app.metadata)
    except RequestError as e:
        problems += e.problems
    if problems:
        raise RequestError(problems)
    stem = f"{app.name}-{opts.share_id}" if opts.share_id else app.name
    name = make_unique(fit_name(stem, AWS_BATCH.within(100)))
    job = _job(app, opts, name, tags, overridden=True)
    if _size(_overrides(job.submission)) > LARGEST_OVERRIDES:
        job = _job(app, opts, name, tags, overridden=False)
    _check_sizes(job)
    _warn(app)
    return job


def _job(
    app: AppDef, opts: AWSBatchOpts, name: str, tags: dict[str, str], *, overridden: bool
) -> BatchJob:
    """Returns the request.

    Args:
        app: the app
        opts: the options
        name: of the job
        tags: of the job
        overridden: what is different in each run is said when the job is submitted, so that the
            next run finds the same definition; otherwise it is in the definition
    """
    containers = []
    overrides = []
    ranges = []
    node = 0
    nodes = sum(role.num_replicas for role in app.roles)
    for index, role in enumerate(app.roles):
        container, override = _container(role, index, node, name, opts, overridden=overridden)
        if nodes > 1 and (kind := instance_type(role.resource)):
            container["instanceType"] = kind
        apply_overlay(container, CONTAINER_OVERLAY.get(role))
        containers.append(container)
        overrides.append(override)
        ranges.append(f"{node}:{node + role.num_replicas - 1}")
        node += role.num_replicas
    retries = max(role.max_retries for role in app.roles)
    definition: dict[str, Any] = {
        "jobDefinitionName": DEFINITION_PREFIX + fit_name(app.name, AWS_BATCH.within(100)),
        "type": "multinode" if nodes > 1 else "container",
        "retryStrategy": {"attempts": retries + 1, "evaluateOnExit": _rules(opts)},
        "tags": {key: value for key, value in tags.items() if key not in app.metadata},
    }
    submission: dict[str, Any] = {"tags": tags}
    if nodes > 1:
        definition["nodeProperties"] = {
            "numNodes": nodes,
            "mainNode": 0,
            "nodeRangeProperties": [
                {"targetNodes": target, "container": container}
                for target, container in zip(ranges, containers, strict=True)
            ],
        }
        changed = [
            {"targetNodes": target, "containerOverrides": override}
            for target, override in zip(ranges, overrides, strict=True)
            if override
        ]
        if changed:
            submission["nodeOverrides"] = {"nodePropertyOverrides": changed}
    else:
        definition["containerProperties"] = containers[0]
        if overrides[0]:
            submission["containerOverrides"] = overrides[0]
    if opts.share_id is not None:
        definition["schedulingPriority"] = opts.priority
    if opts.timeout is not None:
        definition["timeout"] = {"attemptDurationSeconds": opts.timeout}
    if opts.propagate_tags:
        definition["propagateTags"] = submission["propagateTags"] = True
    if opts.depends_on:
        submission["dependsOn"] = [{"jobId": job_id} for job_id in opts.depends_on]
    apply_overlay(definition, DEFINITION_OVERLAY.get(app))
    apply_overlay(submission, SUBMISSION_OVERLAY.get(app))
    return BatchJob(name, opts.queue, opts.share_id, definition, submission=submission)


def _container(
    role: Role, index: int, first_node: int, name: str, opts: AWSBatchOpts, *, overridden: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the properties of a role's containers, and what the submission overrides."""
    mark = replica_mark([role.entrypoint, *role.args, *role.env.values()])
    one = role.num_replicas == 1
    template = RoleTemplate(role)

    def rendered(app_id: str) -> tuple[list[str], dict[str, str]]:
        values = macros.Values("", app_id, "0" if one else mark, ENV_MAIN_NODE)
        variables = template.env(values)
        # Batch drops variables without a value, and gives all replicas the same ones
        by_env = {k: v for k, v in variables.items() if not v or (not one and mark in v)}
        command = make_command(
            [role.entrypoint, *template.args(values)], by_env, mark, None if one else first_node
        )
        plain = {k: v for k, v in variables.items() if k not in by_env}
        plain[ENV_TORCHX_ROLE_IDX] = str(index)
        plain[ENV_TORCHX_ROLE_NAME] = role.name
        return command, plain

    command, variables = rendered(name)
    override: dict[str, Any] = {}
    if overridden:
        # what is the same under any id stays in the definition, and of the rest the template does
        fixed_command, fixed = rendered(macros.app_id)
        varying = {
            key: value
            for key, value in variables.items()
            if value != fixed[key] or (key.startswith(_VARYING) and key not in _OWN_VARIABLES)
        }
        if varying:
            override["environment"] = environment(varying)
        if command != fixed_command:
            override["command"] = command
        command = fixed_command
        variables = {key: value for key, value in variables.items() if key not in varying}
    log: dict[str, Any] = {"logDriver": "awslogs"}
    if opts.log_group:
        log["options"] = {"awslogs-group": opts.log_group}
    container: dict[str, Any] = {
        "command": command,
        "image": role.image,
        "environment": environment(variables),
        "privileged": opts.privileged,
        "resourceRequirements": resource_requirements_from_resource(role.resource),
        **storage(role, opts.shm_mb),
        "logConfiguration": log,
    }
    if opts.job_role_arn:
        container["jobRoleArn"] = opts.job_role_arn
    if opts.execution_role_arn:
        container["executionRoleArn"] = opts.execution_role_arn
    if opts.ulimits:
        container["ulimits"] = [ulimit(text) for text in opts.ulimits]
    if opts.secrets:
        container["secrets"] = [
            {"name": key, "valueFrom": arn} for key, arn in opts.secrets.items()
        ]
    return container, override


def _rules(opts: AWSBatchOpts) -> list[dict[str, str]]:
    rules = [rule(text) for text in opts.retry_rules or ()]
    found = [*rules, {"onExitCode": "0", "action": "EXIT"}]
    if any(one["action"] == "RETRY" for one in rules):
        found.append({"onStatusReason": "*", "action": "EXIT"})
    return found


def _warn(app: AppDef) -> None:
    nodes = sum(role.num_replicas for role in app.roles)
    for role in app.roles:
        if nodes > 1 and role.max_retries and role.retry_policy != RetryPolicy.APPLICATION:
            logger.warning("role %s: a retry restarts all nodes on AWS Batch", role.name)


def _check_sizes(job: BatchJob) -> None:
    problems = []
    size = _size(job.job_def)
    if size > LARGEST_DEFINITION:
        words, where = _largest(job.job_def)
        problems.append(
            f"the job definition has {size} bytes, AWS Batch takes {LARGEST_DEFINITION}; the"
            f" largest part is {where} with {words} bytes: put it into the image, a file or a"
            " bucket"
        )
    size = _size(job.submit_words(job.job_def["jobDefinitionName"]))
    if size > LARGEST_SUBMISSION:
        problems.append(
            f"the submission has {size} bytes, AWS Batch takes {LARGEST_SUBMISSION}; give the app"
            " less metadata"
        )
    if problems:
        raise RequestError(problems)


def _largest(definition: Mapping[str, Any]) -> tuple[int, str]:
    """Returns size and name of the largest part of a definition."""
    parts: list[tuple[int, str]] = []
    for container in containers_of(definition):
        role = role_name_of(container) or "?"
        parts.append((_size(container.get("command")), f"the command of role '{role}'"))
        parts.extend(
            (_size(item), f"the variable {item['name']} of role '{role}'")
            for item in container.get("environment") or ()
        )
    return max(parts)


def containers_of(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the container properties of a job definition or a job, role by role."""
    nodes = definition.get("nodeProperties")
    if nodes:
        return [group.get("container") or {} for group in nodes["nodeRangeProperties"]]
    return [definition.get("containerProperties") or definition.get("container") or {}]


def role_name_of(container: Mapping[str, Any]) -> str | None:
    """Returns the role that a container is of, None if it does not say."""
    for item in container.get("environment") or ():
        if item.get("name") == ENV_TORCHX_ROLE_NAME:
            return str(item.get("value"))
    return None


def _overrides(submission: Mapping[str, Any]) -> object:
    return submission.get("nodeOverrides") or submission.get("containerOverrides") or {}


def _size(value: object) -> int:
    # as botocore writes it
    return len(json.dumps(value))


def format_request(job: BatchJob) -> str:
    """Returns a request as plain YAML, with secrets masked."""
    definition = masked(job.job_def)
    for container, original in zip(
        containers_of(definition), containers_of(job.job_def), strict=True
    ):
        if "secrets" in original:  # names and ARNs; Batch reads the values
            container["secrets"] = original["secrets"]
    return yaml_text(
        {
            "name": job.name,
            "queue": job.queue,
            "share_id": job.share_id,
            "job_def": definition,
            "submit_job": masked(job.submit_words(job.job_def["jobDefinitionName"])),
        }
    )
