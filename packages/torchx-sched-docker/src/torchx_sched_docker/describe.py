"""Describe an app by its containers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import docker.errors

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.times import datetime_of
from torchx_sched_docker.client import EngineError, engine_errors
from torchx_sched_docker.labels import (
    LABEL_APP_ID,
    LABEL_PREFIX_ARGS,
    LABEL_REPLICA_ID,
    LABEL_REQUEUE,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
)
from torchx_sched_docker.records import add_report, read_record
from torchx_sched_docker.states import (
    CANCELLED_SUFFIX,
    DONE_SUFFIX,
    app_state,
    state_reason,
    stopped,
    unneeded,
)
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE, UNKNOWN
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse

if TYPE_CHECKING:
    from datetime import datetime

    from docker.client import DockerClient
    from docker.models.containers import Container


def list_containers(client: DockerClient, app_id: str) -> list[dict[str, Any]]:
    """Return the engine's summaries of an app's containers, ordered by role and replica.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    with engine_errors(f"list the containers of {app_id}"):
        found = client.api.containers(all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"})
    return sorted(found, key=_role_and_replica)


def describe(
    client: DockerClient,
    app_id: str,
    state_of: Callable[[Container], AppState],
    end: Callable[[Iterable[Mapping[str, Any]]], None],
) -> DescribeAppResponse | None:
    """Return the description of an app, or None if the engine has no container of it.

    ``msg`` is the reason of the first failed replica, or ``<NONE>``; ``metadata`` contains the
    published ports. Containers that have to start again are started: the engine does not start a
    container again that somebody has stopped.

    Args:
        client: The client of the engine.
        app_id: The app's id.
        state_of: Returns the state of the replica that runs in a container.
        end: Called with the containers that must end, because other roles have succeeded.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    containers: list[Container] = []
    summaries = list_containers(client, app_id)
    if left := unneeded(summaries):
        end(left)
    for summary in stopped(summaries):
        # If this fails, the engine's description of the container has the reason.
        with contextlib.suppress(EngineError), engine_errors("start a container again"):
            client.api.start(summary["Id"])
    for summary in summaries:
        with engine_errors(f"inspect the container {summary['Id']}"):
            try:
                containers.append(client.containers.get(summary["Id"]))
            except docker.errors.NotFound:
                continue  # Deleted since it was listed.
    if not containers:
        return None
    record = None
    if LABEL_REQUEUE in containers[0].labels:
        record = read_record(client, str(containers[0].id))
    roles: dict[str, Role] = {}
    statuses: dict[str, RoleStatus] = {}
    metadata: dict[str, str] = {}
    for container in containers:
        labels = container.labels
        name = labels.get(LABEL_ROLE_NAME, UNKNOWN)
        index = int(labels.get(LABEL_REPLICA_ID, "0"))
        if name not in roles:
            roles[name] = _role(name, container.attrs)
            statuses[name] = RoleStatus(name, [])
        roles[name].num_replicas += 1
        replica = _replica_status(index, name, container, state_of)
        if record is not None:
            add_report(replica, record, int(labels[LABEL_ROLE_INDEX]))
        statuses[name].replicas.append(replica)
        metadata.update(_published_ports(name, index, container.attrs))
    replicas = [replica for status in statuses.values() for replica in status.replicas]
    failed = next((r for r in replicas if r.state == AppState.FAILED and r.reason), None)
    described = DescribeAppResponse(
        app_id,
        app_state(replica.state for replica in replicas),
        num_restarts=max(replica.restarts for replica in replicas),
        msg=f"{failed.role}/{failed.id}: {failed.reason}" if failed else NONE,
        metadata=metadata,
        roles_statuses=list(statuses.values()),
        roles=list(roles.values()),
    )
    set_times(described, submission([container.attrs for container in containers]), replicas)
    if record is not None:
        described.attempts = record.attempt_statuses(described.state, described.ended)
        first = record.first_failure()
        if described.state == AppState.FAILED and first is not None:
            described.msg = record.refusal() or first.describe(list(roles))
    return described


def submission(inspected: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the first container of an app was created, or None if unknown.

    Args:
        inspected: The engine's descriptions of the app's containers.
    """
    times = (datetime_of(attrs.get("Created")) for attrs in inspected)
    return min((when for when in times if when is not None), default=None)


def _role_and_replica(summary: dict[str, Any]) -> tuple[int, str, int]:
    """Return the sort key of a container; upstream's TorchX sets no label for the role's index."""
    labels = summary["Labels"]
    return (
        int(labels.get(LABEL_ROLE_INDEX, "0")),
        str(labels.get(LABEL_ROLE_NAME)),
        int(labels.get(LABEL_REPLICA_ID, "0")),
    )


def _role(name: str, attrs: dict[str, Any]) -> Role:
    config = attrs["Config"]
    prefix = int((config.get("Labels") or {}).get(LABEL_PREFIX_ARGS, "0"))
    command = (config.get("Cmd") or [])[prefix:]
    policy = attrs.get("HostConfig", {}).get("RestartPolicy") or {}
    retries = (config.get("Labels") or {}).get(LABEL_REQUEUE) or policy.get("MaximumRetryCount")
    return Role(
        name,
        config.get("Image") or UNKNOWN,
        entrypoint=command[0] if command else MISSING,
        args=list(command[1:]),
        num_replicas=0,
        max_retries=int(retries or 0),
    )


def _replica_status(
    index: int, role: str, container: Container, state_of: Callable[[Container], AppState]
) -> ReplicaStatus:
    attrs = container.attrs
    name = (container.name or "").removesuffix(CANCELLED_SUFFIX).removesuffix(DONE_SUFFIX)
    return replica_status(index, role, name, attrs, state_of(container))


def replica_status(
    index: int, role: str, name: str, attrs: Mapping[str, Any], state: AppState
) -> ReplicaStatus:
    """Return the status of a replica.

    Args:
        index: Index of the replica in its role.
        role: Name of the role.
        name: Name of the container.
        attrs: The engine's description of the container.
        state: State of the replica.
    """
    engine_state = attrs["State"]
    has_ended = engine_state["Status"] in ("exited", "dead")
    return ReplicaStatus(
        index,
        state,
        role,
        hostname=name,
        reason=state_reason(attrs),
        exit_code=engine_state.get("ExitCode") if has_ended else None,
        restarts=int(attrs.get("RestartCount") or 0),
        started=datetime_of(engine_state.get("StartedAt")),
        ended=datetime_of(engine_state.get("FinishedAt")) if has_ended else None,
    )


def _published_ports(role: str, index: int, attrs: dict[str, Any]) -> dict[str, str]:
    """Return the addresses at which a replica's ports are published on this machine."""
    ports = attrs.get("NetworkSettings", {}).get("Ports") or {}
    return {
        f"port/{role}/{index}/{port.partition('/')[0]}": f"{b['HostIp']}:{b['HostPort']}"
        for port, bindings in ports.items()
        for b in bindings or ()
    }
