"""Description of a Batch job as an app: roles, replicas, metadata, and address in the console."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.role_checks import check_replica
from torchx_sched_aws.batch.attempts import LAST, attempt_statuses, is_last, split_attempt_command
from torchx_sched_aws.batch.options import INSTANCE_TYPE
from torchx_sched_aws.batch.request import (
    DEFINITION_PREFIX,
    container_properties,
    container_role,
    resource_from_resource_requirements,
)
from torchx_sched_aws.batch.states import (
    definition_name,
    exit_code,
    has_failed_by_itself,
    job_state,
    restart_count,
    state_reason,
    time_of,
)
from torchx_sched_aws.client import console_url
from torchx_sched_aws.command import read_batch_command
from torchx_sched_aws.tags import TAG_TORCHX_APPNAME
from torchx_specs.errors import RequestError
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.secrets import SecretRef, is_secret_reference
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse

#: Role name if the container has no variable with the role's name.
DEFAULT_ROLE_NAME = "node"
#: Log group of jobs that do not set one.
LOG_GROUP = "/aws/batch/job"
# An ARN ends with the secret's name, a hyphen and six characters. In a job definition, a JSON key
# may follow the ARN.
_SECRET_ARN = re.compile(
    r"arn:[^:]+:secretsmanager:[^:]*:[^:]*:secret:([^:]+)-\w{6}(?::([^:]*):[^:]*:[^:]*)?"
)
_PERMISSIONS = {"READ": "r", "WRITE": "w", "MKNOD": "m"}


def describe(
    app_id: str, job: Mapping[str, Any], nodes: Mapping[int, Mapping[str, Any]]
) -> DescribeAppResponse:
    """Return the description of an app.

    Args:
        app_id: Id of the app.
        job: The job, as ``DescribeJobs`` returns it.
        nodes: The job's nodes by index, as ``DescribeJobs`` returns them.
    """
    state = job_state(job)
    roles = read_roles(job)
    reason = state_reason(job)
    several = bool(job.get("nodeProperties"))
    statuses = []
    first = 0
    for role in roles:
        replicas = [
            _replica(role.name, k, nodes.get(first + k), state, reason, several)
            for k in range(role.num_replicas)
        ]
        statuses.append(RoleStatus(role.name, replicas))
        first += role.num_replicas
    replicas = [replica for status in statuses for replica in status.replicas]
    # Batch derives a job's state from the main node alone, so check the other nodes, too.
    if several and state == AppState.SUCCEEDED and any(map(has_failed_by_itself, nodes.values())):
        state = AppState.FAILED
    message = reason
    failed = [r for r in replicas if r.state == AppState.FAILED and r.reason]
    if several and state == AppState.FAILED and failed:
        message = f"{failed[0].role}/{failed[0].id}: {failed[0].reason}"
    command = container_properties(job)[0].get("command") or []
    has_attempts = split_attempt_command(command)[1] is not None
    attempts = attempt_statuses(job, state) if has_attempts else []
    if attempts and state == AppState.FAILED and is_last(exit_code(job)):
        message = LAST
    described = DescribeAppResponse(
        app_id,
        state,
        num_restarts=restart_count(job),
        msg=message or NONE,
        ui_url=job_ui_url(str(job.get("jobArn") or ""), several),
        metadata=_metadata(job),
        roles_statuses=statuses,
        roles=roles,
        attempts=attempts,
    )
    started, ended = time_of(job, "startedAt"), time_of(job, "stoppedAt")
    set_times(described, time_of(job, "createdAt"), replicas, started=started, ended=ended)
    return described


def read_roles(job: Mapping[str, Any]) -> list[Role]:
    """Return the roles of a job, as far as Batch stores them."""
    properties = job.get("nodeProperties")
    counts = [1]
    if properties:
        counts = [
            _parse_num_replicas(group["targetNodes"], properties["numNodes"])
            for group in properties["nodeRangeProperties"]
        ]
    attempts = int((job.get("retryStrategy") or {}).get("attempts") or 1)
    return [
        _role(container, count, attempts - 1)
        for container, count in zip(container_properties(job), counts, strict=True)
    ]


def _role(container: Mapping[str, Any], replicas: int, max_retries: int) -> Role:
    command, retries = split_attempt_command(container.get("command") or [])
    argv, variables = read_batch_command(command)
    env = {item["name"]: item["value"] for item in container.get("environment") or ()}
    resource = resource_from_resource_requirements(container.get("resourceRequirements") or ())
    if container.get("instanceType"):
        resource.capabilities[INSTANCE_TYPE] = container["instanceType"]
    return Role(
        container_role(container) or DEFAULT_ROLE_NAME,
        str(container.get("image") or ""),
        entrypoint=argv[0] if argv else MISSING,
        args=argv[1:],
        env={**env, **variables, **_secrets(container)},
        num_replicas=replicas,
        max_retries=max_retries if retries is None else retries,
        resource=resource,
        mounts=list(_mounts(container)),
    )


def find_node(job: Mapping[str, Any], role_name: str, k: int) -> tuple[int, dict[str, Any]]:
    """Return the index of a replica's node, and the container properties of its role.

    Raises:
        UnknownReplicaError: The role or replica does not exist.
    """
    roles = read_roles(job)
    replicas = {role.name: role.num_replicas for role in roles}
    check_replica(str(job["jobName"]), replicas, role_name, k)
    index = list(replicas).index(role_name)
    first = sum(role.num_replicas for role in roles[:index])
    return first + k, container_properties(job)[index]


def log_group(container: Mapping[str, Any]) -> str:
    """Return the log group of containers.

    Raises:
        RequestError: The containers do not send their logs to CloudWatch.
    """
    logs = container.get("logConfiguration") or {}
    driver = logs.get("logDriver") or "awslogs"
    if driver != "awslogs":
        raise RequestError(
            f"the job's log driver is '{driver}'; only logs in CloudWatch ('awslogs') can be read"
        )
    return str((logs.get("options") or {}).get("awslogs-group") or LOG_GROUP)


def log_streams(node: Mapping[str, Any]) -> list[str]:
    """Return the names of a node's log streams, one for each attempt."""
    containers = [one.get("container") or {} for one in (*(node.get("attempts") or ()), node)]
    return [str(c["logStreamName"]) for c in containers if c.get("logStreamName")]


def _secrets(container: Mapping[str, Any]) -> dict[str, str]:
    """Return a container's references to secrets, by the name of the environment variable.

    Leave out values from the Parameter Store, and secrets that no reference can name.
    """
    env = {}
    for item in container.get("secrets") or ():
        found = _SECRET_ARN.fullmatch(str(item.get("valueFrom")))
        if found and "/" not in found[1]:  # names in AWS may contain a slash, references may not
            reference = str(SecretRef(found[1], found[2] or None))
            if is_secret_reference(reference):
                env[str(item["name"])] = reference
    return env


def _mounts(container: Mapping[str, Any]) -> Iterator[BindMount | VolumeMount | DeviceMount]:
    volumes = {volume["name"]: volume for volume in container.get("volumes") or ()}
    for point in container.get("mountPoints") or ():
        volume = volumes.get(point["sourceVolume"]) or {}
        target, read_only = point.get("containerPath", ""), bool(point.get("readOnly"))
        efs = volume.get("efsVolumeConfiguration")
        if not efs:
            yield BindMount((volume.get("host") or {}).get("sourcePath", ""), target, read_only)
            continue
        access = (efs.get("authorizationConfig") or {}).get("accessPointId")
        below = access or efs.get("rootDirectory")
        source = f"{efs['fileSystemId']}:{below}" if below else efs["fileSystemId"]
        yield VolumeMount(source, target, read_only)
    for device in (container.get("linuxParameters") or {}).get("devices") or ():
        yield DeviceMount(
            device["hostPath"],
            device.get("containerPath") or device["hostPath"],
            "".join(_PERMISSIONS.get(p, "") for p in device.get("permissions") or ()) or "rwm",
        )


def _replica(
    role: str,
    k: int,
    node: Mapping[str, Any] | None,
    app: AppState,
    reason: str,
    several: bool,
) -> ReplicaStatus:
    if node is None:  # the node never started
        node_state = AppState.PENDING if app == AppState.RUNNING else app
        return ReplicaStatus(k, node_state, role, "", reason=reason)
    state = job_state(node)
    if is_terminal(app):
        # When the main node ends, Batch stops the other nodes and reports them as FAILED.
        if app == AppState.CANCELLED and state != AppState.SUCCEEDED:
            state = AppState.CANCELLED
        elif app == AppState.SUCCEEDED and state == AppState.FAILED:
            state = state if has_failed_by_itself(node) else AppState.CANCELLED
        elif not is_terminal(state):
            state = app
    container = node.get("container") or {}
    address = next(
        (
            str(interface["privateIpv4Address"])
            for interface in container.get("networkInterfaces") or ()
            if interface.get("privateIpv4Address")
        ),
        "",
    )
    return ReplicaStatus(
        k,
        state,
        role,
        address,
        reason=state_reason(node) or ("" if several else reason),
        exit_code=exit_code(node),
        node=str(container.get("containerInstanceArn") or "").rpartition("/")[2] or None,
        restarts=restart_count(node),
        started=time_of(node, "startedAt"),
        ended=time_of(node, "stoppedAt") if is_terminal(state) else None,
    )


def _metadata(job: Mapping[str, Any]) -> dict[str, str]:
    tags = job.get("tags") or {}
    found = {key: str(value) for key, value in tags.items()}
    found["aws_batch/job_id"] = str(job.get("jobId") or "")
    found["aws_batch/job_definition"] = str(job.get("jobDefinition") or "")
    found.setdefault(TAG_TORCHX_APPNAME, definition_name(job).removeprefix(DEFINITION_PREFIX))
    return found


def job_ui_url(job_arn: str, several_nodes: bool = True) -> str | None:
    """Return the address of a job in the AWS console, or None if ``job_arn`` is not a job's ARN.

    Args:
        job_arn: ARN of the job.
        several_nodes: Whether the job is a multi-node parallel job.
    """
    parts = job_arn.split(":")
    if len(parts) < 6 or not parts[5].startswith("job/"):
        return None
    kind = "mnp-job" if several_nodes else "detail"
    return console_url(job_arn, "batch", f"jobs/{kind}/{job_arn.partition(':job/')[2]}")


def _parse_start_and_end_idx(target_nodes: str, num_nodes: int) -> tuple[int, int]:
    """Return the first and the last index of a range: ``3``, ``0:3``, ``:3``, ``2:`` or ``:``."""
    start, colon, end = target_nodes.partition(":")
    if not colon:
        return int(start), int(start)
    return int(start or 0), int(end or num_nodes - 1)


def _parse_num_replicas(target_nodes: str, num_nodes: int) -> int:
    """Return the number of nodes in a range."""
    first, last = _parse_start_and_end_idx(target_nodes, num_nodes)
    return last - first + 1
