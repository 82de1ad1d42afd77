"""The native request: a job definition, and the parameters of its submission."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Any

from torchx_kit.devices import get_device_mounts
from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import AWS_BATCH, fit_name
from torchx_kit.role_templates import RoleTemplate
from torchx_kit.text.yaml_text import yaml_text
from torchx_sched_aws.batch.attempts import RETRY_RULES, attempt_command, has_attempts
from torchx_sched_aws.batch.options import (
    DEVICE_PERMISSIONS,
    MAX_ATTEMPTS,
    AWSBatchOpts,
    instance_type,
    parse_ulimit,
    queue_name,
)
from torchx_sched_aws.command import batch_command, make_placeholder
from torchx_sched_aws.limits import without_unset
from torchx_sched_aws.tags import make_tags
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.mounts import BindMount, DeviceMount
from torchx_specs.model.resources import Resource
from torchx_specs.model.secrets import is_secret_reference
from torchx_specs.model.templates import macros
from torchx_specs.overlays import OverlaySpec, apply_overlay
from torchx_specs.redaction import masked
from torchx_specs.settings import (
    ENV_TORCHX_NUM_REPLICAS,
    ENV_TORCHX_REPLICA_ID,
    ENV_TORCHX_RESUME_DIR,
    ENV_TORCHX_ROLE,
)

#: Environment variable with the index of the role in its app.
ENV_TORCHX_ROLE_IDX = "TORCHX_ROLE_IDX"
#: Environment variable with the name of the role.
ENV_TORCHX_ROLE_NAME = "TORCHX_ROLE_NAME"
#: Environment variable with the first node's address; Batch sets it only on the other nodes.
ENV_MAIN_NODE = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
#: Prefix of the names of TorchX's job definitions.
DEFINITION_PREFIX = "torchx-"

MAX_DEFINITION_BYTES = 24 * 1024
MAX_SUBMISSION_BYTES = 30 * 1024
MAX_OVERRIDE_BYTES = 8192

_OWN_VARIABLES = (
    ENV_TORCHX_ROLE_IDX,
    ENV_TORCHX_ROLE_NAME,
    ENV_TORCHX_ROLE,
    ENV_TORCHX_REPLICA_ID,
    ENV_TORCHX_NUM_REPLICAS,
)
#: Prefix of variables whose values change with each run, except ``_OWN_VARIABLES``.
_VARYING = "TORCHX_"

CONTAINER_OVERLAY = OverlaySpec("aws_batch", "Container", ("command", "environment", "image"))
DEFINITION_OVERLAY = OverlaySpec("aws_batch", "JobDefinition", ("jobDefinitionName", "type"))
SUBMISSION_OVERLAY = OverlaySpec("aws_batch", "SubmitJob", ("jobName", "jobQueue", "jobDefinition"))

logger = logging.getLogger(__name__)


class ResourceType(Enum):
    """Types of a container's resource requirements."""

    VCPU = 1
    GPU = 2
    MEMORY = 3


def resource_requirements_from_resource(resource: Resource) -> list[dict[str, str]]:
    """Return a resource as Batch's resource requirements, with at least one CPU."""
    required = [
        {"type": ResourceType.VCPU.name, "value": str(max(1, ceil(resource.cpu)))},
        {"type": ResourceType.MEMORY.name, "value": str(int(resource.memMB))},
    ]
    if resource.gpu > 0:
        required.append({"type": ResourceType.GPU.name, "value": str(int(resource.gpu))})
    return required


def resource_from_resource_requirements(
    resource_requirements: Sequence[Mapping[str, str]],
) -> Resource:
    """Return the resource for Batch's resource requirements; an unknown CPU or memory is -1."""
    values = {item["type"]: int(float(item["value"])) for item in resource_requirements}
    return Resource(
        cpu=values.get(ResourceType.VCPU.name, -1),
        gpu=values.get(ResourceType.GPU.name, 0),
        memMB=values.get(ResourceType.MEMORY.name, -1),
    )


def environment(variables: Mapping[str, str]) -> list[dict[str, str]]:
    """Return environment variables in Batch's form."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def _storage(role: Role, shm_mb: int | None) -> dict[str, Any]:
    """Return the volumes, mount points and Linux parameters of a role's containers.

    Args:
        role: The role.
        shm_mb: Size of /dev/shm in MB; None means the memory of the container.
    """
    volumes: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for i, mount in enumerate([*role.mounts, *get_device_mounts(role.resource.devices)]):
        name = f"mount_{i}"
        if isinstance(mount, DeviceMount):
            permissions = [DEVICE_PERMISSIONS[p] for p in mount.permissions]
            devices.append(
                {
                    "hostPath": mount.src_path,
                    "containerPath": mount.dst_path,
                    "permissions": permissions,
                }
            )
            continue
        if isinstance(mount, BindMount):
            volumes.append({"name": name, "host": {"sourcePath": mount.src_path}})
        else:
            volumes.append({"name": name, "efsVolumeConfiguration": _efs(mount.src)})
        points.append(
            {"sourceVolume": name, "containerPath": mount.dst_path, "readOnly": mount.read_only}
        )
    shared = shm_mb or int(role.resource.memMB)
    return {
        "linuxParameters": {"sharedMemorySize": shared, "devices": devices},
        "mountPoints": points,
        "volumes": volumes,
    }


def _efs(source: str) -> dict[str, Any]:
    file_system, _, below = source.partition(":")
    is_point = not below.startswith("/") and below != ""
    return {
        "fileSystemId": file_system,
        "rootDirectory": None if is_point else below or None,
        "transitEncryption": "ENABLED" if is_point else None,
        "authorizationConfig": {"accessPointId": below if is_point else None},
    }


@dataclass
class BatchJob:
    """A request to AWS Batch.

    Attributes:
        name: Unique name of the job.
        queue: Name or ARN of the job queue.
        share_id: Share identifier, or None if the queue has no scheduling policy.
        job_def: Parameters of ``RegisterJobDefinition``.
        images_to_push: Unused; kept for code written for upstream's TorchX.
        submission: Parameters of ``SubmitJob`` other than names: tags, overrides and so on.
    """

    name: str
    queue: str
    share_id: str | None
    job_def: dict[str, Any]
    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    submission: dict[str, Any] = field(default_factory=dict)

    def submit_parameters(self, definition: str) -> dict[str, Any]:
        """Return all parameters of ``SubmitJob``.

        Args:
            definition: Name or ARN of the job definition.
        """
        parameters: dict[str, Any] = {
            "jobName": self.name,
            "jobQueue": self.queue,
            "jobDefinition": definition,
            **self.submission,
            "shareIdentifier": self.share_id,
        }
        return {name: value for name, value in parameters.items() if value is not None}

    @property
    def app_id(self) -> str:
        """Id of the app, in the form ``<queue name>:<job name>``."""
        return f"{queue_name(self.queue)}:{self.name}"

    def __str__(self) -> str:
        """Return the request as YAML, with secrets masked."""
        definition = masked(self.job_def)
        for container, original in zip(
            container_properties(definition), container_properties(self.job_def), strict=True
        ):
            if "secrets" in original:  # names and ARNs are not secret; Batch reads the values
                container["secrets"] = original["secrets"]
        return yaml_text(
            {
                "name": self.name,
                "queue": self.queue,
                "share_id": self.share_id,
                "job_def": definition,
                "submit_job": masked(self.submit_parameters(self.job_def["jobDefinitionName"])),
            }
        )


def make_request(app: AppDef, opts: AWSBatchOpts) -> BatchJob:
    """Return the request for an app, without contacting AWS.

    Raises:
        RequestError: A secret needs another option, or the request is too large.
    """
    tags = make_tags(app.name, opts.user, app.metadata)
    stem = f"{app.name}-{opts.share_id}" if opts.share_id else app.name
    name = make_unique(fit_name(stem, AWS_BATCH.within(100)))
    job = _job(app, opts, name, tags, overridden=True)
    overrides = job.submission.get("nodeOverrides") or job.submission.get("containerOverrides")
    if overrides and json_size(overrides) > MAX_OVERRIDE_BYTES:
        job = _job(app, opts, name, tags, overridden=False)
    _check_sizes(job)
    if sum(role.num_replicas for role in app.roles) > 1:
        for role in app.roles:
            if role.max_retries and role.retry_policy != RetryPolicy.APPLICATION:
                logger.warning("role %s: AWS Batch restarts all nodes on a retry", role.name)
    return job


def _job(
    app: AppDef, opts: AWSBatchOpts, name: str, tags: dict[str, str], *, overridden: bool
) -> BatchJob:
    """Return the request.

    Args:
        app: The app.
        opts: The options.
        name: Name of the job.
        tags: Tags of the job.
        overridden: Whether values that change with each run become overrides of the submission, so
            that the next run can use the same definition. Otherwise the definition has the values.
    """
    groups: list[dict[str, Any]] = []
    overrides: list[dict[str, Any]] = []
    problems: list[str] = []
    node = 0
    retries = max(role.max_retries for role in app.roles)
    for index, role in enumerate(app.roles):
        target = {"targetNodes": f"{node}:{node + role.num_replicas - 1}"}
        container, override = _container(role, index, node, name, opts, overridden=overridden)
        for part in (container, override):
            if "command" in part:
                part["command"] = attempt_command(part["command"], opts, retries)
        apply_overlay(container, CONTAINER_OVERLAY.get(role))
        problems += [f"role '{role.name}': {p}" for p in _move_secrets(container)]
        groups.append({**target, "container": container})
        if override:
            overrides.append({**target, "containerOverrides": override})
        node += role.num_replicas
    if problems:
        raise RequestError(problems)
    definition: dict[str, Any] = {
        "jobDefinitionName": DEFINITION_PREFIX + fit_name(app.name, AWS_BATCH.within(100)),
        "type": "container",
        "retryStrategy": {
            "attempts": MAX_ATTEMPTS if has_attempts(opts) else retries + 1,
            "evaluateOnExit": _rules(opts),
        },
        "schedulingPriority": None if opts.share_id is None else opts.priority,
        "timeout": {"attemptDurationSeconds": opts.timeout},
        "propagateTags": opts.propagate_tags or None,
        "tags": {key: value for key, value in tags.items() if key not in app.metadata},
    }
    submission: dict[str, Any] = {
        "tags": tags,
        "propagateTags": opts.propagate_tags or None,
        "dependsOn": [{"jobId": job_id} for job_id in opts.depends_on or ()],
    }
    # Only the node groups of a multi-node job have an instance type.
    if node > 1 or any(instance_type(role.resource) for role in app.roles):
        definition["type"] = "multinode"
        definition["nodeProperties"] = {
            "numNodes": node,
            "mainNode": 0,
            "nodeRangeProperties": groups,
        }
        if overrides:
            submission["nodeOverrides"] = {"nodePropertyOverrides": overrides}
    else:
        definition["containerProperties"] = groups[0]["container"]
        if overrides:
            submission["containerOverrides"] = overrides[0]["containerOverrides"]
    definition, submission = without_unset(definition), without_unset(submission)
    apply_overlay(definition, DEFINITION_OVERLAY.get(app))
    apply_overlay(submission, SUBMISSION_OVERLAY.get(app))
    return BatchJob(name, opts.queue, opts.share_id, definition, submission=submission)


def _container(
    role: Role, index: int, first_node: int, name: str, opts: AWSBatchOpts, *, overridden: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the properties of a role's containers, and the overrides of the submission."""
    placeholder = make_placeholder([role.entrypoint, *role.args, *role.env.values()])
    single = role.num_replicas == 1
    template = RoleTemplate(role)
    values = macros.Values("", name, "0" if single else placeholder, ENV_MAIN_NODE)
    variables = template.env(values)
    variables[ENV_TORCHX_REPLICA_ID] = values.replica_id
    if opts.resume_dir:
        variables[ENV_TORCHX_RESUME_DIR] = opts.resume_dir.replace(macros.app_id, name)
    # Batch drops variables with an empty value, and all replicas share one environment.
    by_env = {k: v for k, v in variables.items() if not v or (not single and placeholder in v)}
    argv = [role.entrypoint, *template.args(values)]
    command = batch_command(argv, by_env, placeholder, first_node)
    variables = {k: v for k, v in variables.items() if k not in by_env}
    variables[ENV_TORCHX_ROLE_IDX] = str(index)
    variables[ENV_TORCHX_ROLE_NAME] = role.name
    override: dict[str, Any] = {}
    if overridden:
        # The definition keeps all values that do not depend on the job's name, which is unique.
        varying = {
            key: value
            for key, value in variables.items()
            if not is_secret_reference(value)
            and (name in value or (key.startswith(_VARYING) and key not in _OWN_VARIABLES))
        }
        variables = {key: value for key, value in variables.items() if key not in varying}
        if varying:
            override["environment"] = environment(varying)
        if any(name in text for text in command):
            override["command"] = command
            command = [text.replace(name, macros.app_id) for text in command]
    secrets = [{"name": key, "valueFrom": arn} for key, arn in (opts.secrets or {}).items()]
    container = {
        "command": command,
        "image": role.image,
        "environment": environment(variables),
        "privileged": opts.privileged,
        "resourceRequirements": resource_requirements_from_resource(role.resource),
        **_storage(role, opts.shm_mb),
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {"awslogs-group": opts.log_group},
        },
        "jobRoleArn": opts.job_role_arn,
        "executionRoleArn": opts.execution_role_arn,
        "ulimits": [parse_ulimit(text) for text in opts.ulimits or ()],
        "secrets": secrets,
        "instanceType": instance_type(role.resource),
    }
    return without_unset(container), override


def _move_secrets(container: dict[str, Any]) -> list[str]:
    """Move references to secrets from ``environment`` to ``secrets``, and return the problems.

    The submission replaces the references by ARNs.
    """
    variables = container.get("environment") or []
    moved = [item for item in variables if is_secret_reference(str(item.get("value")))]
    if not moved:
        return []
    container["environment"] = [item for item in variables if item not in moved]
    container["secrets"] = [
        *(container.get("secrets") or ()),
        *({"name": item["name"], "valueFrom": item["value"]} for item in moved),
    ]
    if container.get("executionRoleArn"):
        return []
    return [
        f"env['{item['name']}'] is {item['value']}; to read it, AWS Batch needs the option"
        " execution_role_arn, a role with the permission secretsmanager:GetSecretValue"
        for item in moved
    ]


def _rules(opts: AWSBatchOpts) -> list[dict[str, str]]:
    success = {"onExitCode": "0", "action": "EXIT"}
    if not has_attempts(opts):
        return [success]
    return [*RETRY_RULES, success, {"onStatusReason": "*", "action": "EXIT"}]


def _check_sizes(job: BatchJob) -> None:
    problems = []
    size = json_size(job.job_def)
    if size > MAX_DEFINITION_BYTES:
        part, where = _largest(job.job_def)
        problems.append(
            f"the job definition has {size} bytes, AWS Batch allows {MAX_DEFINITION_BYTES}; move"
            f" the largest part, {where} with {part} bytes, into the image, a file or a bucket"
        )
    size = json_size(job.submit_parameters(job.job_def["jobDefinitionName"]))
    if size > MAX_SUBMISSION_BYTES:
        problems.append(
            f"the submission has {size} bytes, AWS Batch allows {MAX_SUBMISSION_BYTES}; reduce the"
            " app's metadata"
        )
    if problems:
        raise RequestError(problems)


def _largest(definition: Mapping[str, Any]) -> tuple[int, str]:
    """Return the size in bytes and the name of the largest part of a definition."""
    parts: list[tuple[int, str]] = []
    for container in container_properties(definition):
        role = container_role(container) or "?"
        parts.append((json_size(container.get("command")), f"the command of role '{role}'"))
        parts.extend(
            (json_size(item), f"the variable {item['name']} of role '{role}'")
            for item in container.get("environment") or ()
        )
    return max(parts)


def container_properties(definition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the container properties of a job or a job definition, one item for each role."""
    nodes = definition.get("nodeProperties")
    if nodes:
        return [group.get("container") or {} for group in nodes["nodeRangeProperties"]]
    return [definition.get("containerProperties") or definition.get("container") or {}]


def container_role(container: Mapping[str, Any]) -> str | None:
    """Return the name of a container's role, or None if the container does not name it."""
    for item in container.get("environment") or ():
        if item.get("name") == ENV_TORCHX_ROLE_NAME:
            return str(item.get("value"))
    return None


def json_size(value: object) -> int:
    """Return the number of bytes of a value in a request."""
    return len(json.dumps(value))
