"""Map the engine's container states to the states of replicas and apps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torchx_kit.signals import describe_exit
from torchx_kit.times import datetime_of
from torchx_sched_docker.labels import (
    LABEL_APP_ID,
    LABEL_ENDS_APP,
    LABEL_REQUEUE,
    LABEL_TIME_LIMIT,
)
from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, is_terminal

#: The state of a replica by the state of its container. ``exited`` is missing, because it depends
#: on the exit code.
CONTAINER_STATE: dict[str, AppState] = {
    "created": AppState.SUBMITTED,
    "restarting": AppState.PENDING,
    "running": AppState.RUNNING,
    "paused": AppState.PENDING,
    "removing": AppState.PENDING,
    "dead": AppState.FAILED,
}

#: Suffix of a cancelled container's name. The name records the cancellation because, unlike a
#: label, a name can be changed later, and because every client of the engine sees the name.
CANCELLED_SUFFIX = "_cancelled"

#: Suffix of the name of a container that was stopped because the roles whose success ends the app
#: had succeeded.
DONE_SUFFIX = "_done"

#: The exit codes after which a container with the option ``requeue`` has ended: that of an app that
#: has ended, and those of containers whose program, a shell script, cannot be run.
FINAL = (0, 126, 127, 128)

# An app runs while one of its replicas runs, and has ended when all of them have.
_APP_STATES = (
    AppState.RUNNING,
    AppState.SUBMITTED,
    AppState.PENDING,
    AppState.UNKNOWN,
    AppState.CANCELLED,
    AppState.FAILED,
)
_EXIT_CODE = re.compile(r"\((\d+)\)")
_NOT_RUNNING = frozenset({"created", "exited", "dead", "removing"})


def replica_state(
    status: str, exit_code: int | None, name: str, labels: Mapping[str, str] = MappingProxyType({})
) -> AppState:
    """Return the state of the replica that runs in a container.

    Args:
        status: The container's state, as the engine names it.
        exit_code: The exit code of the container's last process; None if unknown.
        name: The container's name. It ends with :data:`CANCELLED_SUFFIX` if the app was cancelled,
            and with :data:`DONE_SUFFIX` if the container was no longer needed.
        labels: The container's labels. With the option ``requeue``, the container starts again
            after exit codes that are not in :data:`FINAL`.
    """
    if name.endswith(CANCELLED_SUFFIX) and status in _NOT_RUNNING:
        return AppState.CANCELLED
    if name.endswith(DONE_SUFFIX) and status in _NOT_RUNNING:
        return AppState.SUCCEEDED
    if status == "exited":
        if exit_code is None:
            return AppState.UNKNOWN
        if LABEL_REQUEUE in labels and exit_code not in FINAL:
            return AppState.PENDING
        return AppState.SUCCEEDED if exit_code == 0 else AppState.FAILED
    return CONTAINER_STATE.get(status, AppState.UNKNOWN)


def app_state(replicas: Iterable[AppState]) -> AppState:
    """Return the state of an app: the first of :data:`_APP_STATES` that one of its replicas has."""
    found = set(replicas)
    return next((state for state in _APP_STATES if state in found), AppState.SUCCEEDED)


def unneeded(summaries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the containers that still run although their apps have reached the end.

    Args:
        summaries: The engine's summaries of the containers of one or more apps.
    """
    deciding = [
        (summary["Labels"][LABEL_APP_ID], summary_state(summary))
        for summary in summaries
        if LABEL_ENDS_APP in summary["Labels"]
    ]
    ended = {app for app, _ in deciding}
    ended -= {app for app, state in deciding if state != AppState.SUCCEEDED}
    return [
        summary
        for summary in summaries
        if summary["Labels"][LABEL_APP_ID] in ended and not is_terminal(summary_state(summary))
    ]


def stopped(summaries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the containers with the option ``requeue`` that have to start again.

    Args:
        summaries: The engine's summaries of containers.
    """
    return [
        summary
        for summary in summaries
        if summary["State"] == "exited" and summary_state(summary) == AppState.PENDING
    ]


def summary_state(summary: Mapping[str, Any]) -> AppState:
    """Return the state of a replica from the engine's summary of its container."""
    found = _EXIT_CODE.search(summary.get("Status", ""))
    code = int(found[1]) if found else None
    return replica_state(summary["State"], code, container_name(summary), summary["Labels"])


def container_name(summary: Mapping[str, Any]) -> str:
    """Return the name of a container from the engine's summary."""
    return str((summary.get("Names") or [""])[0]).lstrip("/")


def inspected_state(attrs: Mapping[str, Any]) -> AppState:
    """Return the state of a replica from the engine's description of its container."""
    state, labels = attrs["State"], (attrs.get("Config") or {}).get("Labels") or {}
    return replica_state(state["Status"], state.get("ExitCode"), attrs["Name"].lstrip("/"), labels)


def state_reason(attrs: Mapping[str, Any]) -> str:
    """Return the reason for a container's state; empty if there is nothing to explain.

    Args:
        attrs: The engine's description of the container.
    """
    state = attrs["State"]
    status, code = state["Status"], int(state.get("ExitCode") or 0)
    reasons = []
    limit = int(attrs.get("HostConfig", {}).get("Memory") or 0) >> 20
    if state.get("OOMKilled"):
        reasons.append(f"OOMKilled: over its limit of {limit} MB" if limit else "OOMKilled")
    error = one_line(state.get("Error") or "")
    if error:
        reasons.append(error)
    if status == "restarting":
        reasons.append(f"restarting after exit code {code}")
    elif status == "paused":
        reasons.append("paused")
    elif status in ("exited", "dead") and code and not reasons:
        reason = describe_exit(code)
        if code == 137 and limit and not attrs["Name"].endswith((CANCELLED_SUFFIX, DONE_SUFFIX)):
            # A busy engine receives the kernel's out-of-memory event after the exit, or never.
            reason += f", perhaps because it was over its limit of {limit} MB"
        reasons.append(_late_reason(attrs) or reason)
    if attrs["Name"].endswith(CANCELLED_SUFFIX) and status in _NOT_RUNNING:
        reasons.insert(0, "cancelled")
    if attrs["Name"].endswith(DONE_SUFFIX) and status in _NOT_RUNNING:
        reasons.insert(0, "stopped after the success of other roles")
    return "; ".join(reasons)


def _late_reason(attrs: Mapping[str, Any]) -> str:
    """Return the reason for the end of a container at its time limit; otherwise an empty string."""
    limit = ((attrs.get("Config") or {}).get("Labels") or {}).get(LABEL_TIME_LIMIT)
    state = attrs["State"]
    started, ended = datetime_of(state.get("StartedAt")), datetime_of(state.get("FinishedAt"))
    if limit is None or started is None or ended is None:
        return ""
    is_late = (ended - started).total_seconds() >= float(limit)
    return f"time limit of {limit} s reached (option time)" if is_late else ""
