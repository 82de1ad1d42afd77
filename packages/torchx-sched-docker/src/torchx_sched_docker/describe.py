"""Describe an app by its containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from docker.client import DockerClient
from docker.models.containers import Container

from torchx_kit.jobs.descriptions import set_times
from torchx_kit.times import datetime_of
from torchx_sched_docker.client import engine_errors, ignoring, in_parallel
from torchx_sched_docker.labels import (
    LABEL_PREFIX_ARGS,
    LABEL_REPLICA_ID,
    LABEL_REQUEUE,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
)
from torchx_sched_docker.records import add_report, read_record
from torchx_sched_docker.states import CANCELLED_SUFFIX, DONE_SUFFIX, app_state, state_reason
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE, UNKNOWN
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse


def inspect(client: DockerClient, summaries: Sequence[Mapping[str, Any]]) -> list[Container]:
    """Return containers in the order of their summaries; deleted ones are left out.

    Raises:
        BackendError: The engine does not answer, or refuses a request.
    """

    def get(summary: Mapping[str, Any]) -> Container | None:
        container = summary["Id"]
        with ignoring(404), engine_errors(f"inspect the container {container}"):
            return client.containers.get(container)
        return None

    return [container for container in in_parallel(get, summaries) if container is not None]


def describe(
    client: DockerClient,
    app_id: str,
    containers: Sequence[Container],
    state_of: Callable[[Container], AppState],
) -> DescribeAppResponse:
    """Return the description of an app.

    ``msg`` is the reason of the first failed replica, or ``<NONE>``; ``metadata`` contains the
    published ports.

    Args:
        client: The client of the engine.
        app_id: The app's id.
        containers: The app's containers, at least one, ordered by role and replica.
        state_of: Returns the state of the replica that runs in a container.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
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
        replica = _replica_status(index, name, container, state_of(container))
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
    created = (datetime_of(container.attrs.get("Created")) for container in containers)
    submitted = min((when for when in created if when is not None), default=None)
    set_times(described, submitted, replicas)
    if record is not None:
        described.attempts = record.attempt_statuses(described.state, described.ended)
        first = record.first_failure()
        if described.state == AppState.FAILED and first is not None:
            described.msg = record.refusal() or first.describe(list(roles))
    return described


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


def _replica_status(index: int, role: str, container: Container, state: AppState) -> ReplicaStatus:
    engine_state = container.attrs["State"]
    has_ended = engine_state["Status"] in ("exited", "dead")
    return ReplicaStatus(
        index,
        state,
        role,
        hostname=(container.name or "").removesuffix(CANCELLED_SUFFIX).removesuffix(DONE_SUFFIX),
        reason=state_reason(container.attrs),
        exit_code=engine_state.get("ExitCode") if has_ended else None,
        restarts=int(container.attrs.get("RestartCount") or 0),
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
