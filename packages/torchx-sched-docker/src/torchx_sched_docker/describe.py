"""Describing an app by its containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchx_sched_docker.client import engine_errors
from torchx_sched_docker.labels import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
)
from torchx_sched_docker.states import CANCELLED_SUFFIX, app_state, reason_of
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE, UNKNOWN
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse

if TYPE_CHECKING:
    from docker.client import DockerClient
    from docker.models.containers import Container


def summaries(client: DockerClient, app_id: str) -> list[dict[str, Any]]:
    """Returns the engine's list of an app's containers, in the order of roles and replicas."""
    with engine_errors(f"look for the containers of {app_id}"):
        found = client.api.containers(all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"})
    # containers of older releases have no index; their roles come in the order of their names
    return sorted(found, key=lambda s: (int(s["Labels"].get(LABEL_ROLE_INDEX, "0")), *_which(s)))


def describe(
    client: DockerClient, app_id: str, state_of: Callable[[Container], AppState]
) -> DescribeAppResponse | None:
    """Returns what the engine knows of an app, None if nothing.

    Args:
        client: of the engine
        app_id: the app
        state_of: says the state of a container's replica
    """
    import docker.errors

    containers: list[Container] = []
    for summary in summaries(client, app_id):
        with engine_errors(f"look at the container {summary['Id']}"):
            try:
                containers.append(client.containers.get(summary["Id"]))
            except docker.errors.NotFound:
                continue  # deleted just now
    if not containers:
        return None
    roles: dict[str, Role] = {}
    statuses: dict[str, RoleStatus] = {}
    metadata: dict[str, str] = {}
    for container in containers:
        labels = container.labels
        name = labels.get(LABEL_ROLE_NAME, UNKNOWN)
        index = int(labels.get(LABEL_REPLICA_ID, "0"))
        if name not in roles:
            roles[name] = _described_role(name, container.attrs)
            statuses[name] = RoleStatus(name, [])
        roles[name].num_replicas += 1
        statuses[name].replicas.append(_replica_status(index, name, container, state_of))
        metadata.update(_published(name, index, container.attrs))
    replicas = [replica for status in statuses.values() for replica in status.replicas]
    failed = next((r for r in replicas if r.state == AppState.FAILED and r.reason), None)
    return DescribeAppResponse(
        app_id,
        app_state(replica.state for replica in replicas),
        num_restarts=max(replica.restarts for replica in replicas),
        msg=f"{failed.role}/{failed.id}: {failed.reason}" if failed else NONE,
        metadata=metadata,
        roles_statuses=list(statuses.values()),
        roles=list(roles.values()),
    )


def _which(summary: dict[str, Any]) -> tuple[str, int]:
    labels = summary["Labels"]
    return str(labels.get(LABEL_ROLE_NAME)), int(labels.get(LABEL_REPLICA_ID, "0"))


def _described_role(name: str, attrs: dict[str, Any]) -> Role:
    config = attrs["Config"]
    command = config.get("Cmd") or []
    policy = attrs.get("HostConfig", {}).get("RestartPolicy") or {}
    return Role(
        name,
        config.get("Image") or UNKNOWN,
        entrypoint=command[0] if command else MISSING,
        args=list(command[1:]),
        num_replicas=0,
        max_retries=int(policy.get("MaximumRetryCount") or 0),
    )


def _replica_status(
    index: int, role: str, container: Container, state_of: Callable[[Container], AppState]
) -> ReplicaStatus:
    attrs = container.attrs
    state = attrs["State"]
    name = (container.name or "").removesuffix(CANCELLED_SUFFIX)
    return ReplicaStatus(
        index,
        state_of(container),
        role,
        hostname=name,
        reason=reason_of(attrs),
        exit_code=state.get("ExitCode") if state["Status"] in ("exited", "dead") else None,
        restarts=int(attrs.get("RestartCount") or 0),
    )


def _published(role: str, index: int, attrs: dict[str, Any]) -> dict[str, str]:
    """Returns where the ports of a replica are reached from this machine."""
    ports = attrs.get("NetworkSettings", {}).get("Ports") or {}
    return {
        f"port/{role}/{index}/{port.partition('/')[0]}": f"{b['HostIp']}:{b['HostPort']}"
        for port, bindings in ports.items()
        for b in bindings or ()
    }
