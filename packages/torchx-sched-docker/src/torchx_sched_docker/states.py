"""What the engine says of containers, as states of replicas and apps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_specs.model.status import AppState, is_terminal

#: States of the engine, but ``exited``, which needs the exit code.
CONTAINER_STATE: dict[str, AppState] = {
    "created": AppState.SUBMITTED,
    "restarting": AppState.PENDING,
    "running": AppState.RUNNING,
    "paused": AppState.PENDING,
    "removing": AppState.PENDING,
    "dead": AppState.FAILED,
}

#: What a container's name ends in once its app was cancelled: labels cannot be changed, names can,
#: and whoever lists containers sees it.
CANCELLED_SUFFIX = "_cancelled"

_EXIT_CODE = re.compile(r"\((\d+)\)")
_GONE = frozenset({"created", "exited", "dead", "removing"})
_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
}


def replica_state(status: str, exit_code: int | None, name: str) -> AppState:
    """Returns the state of a container's replica.

    Args:
        status: the engine's word
        exit_code: of its last process, None if unknown
        name: the container's name, which tells whether it was cancelled
    """
    if name.endswith(CANCELLED_SUFFIX) and status in _GONE:
        return AppState.CANCELLED
    if status == "exited":
        if exit_code is None:
            return AppState.UNKNOWN
        return AppState.SUCCEEDED if exit_code == 0 else AppState.FAILED
    return CONTAINER_STATE.get(status, AppState.UNKNOWN)


def app_state(replicas: Iterable[AppState]) -> AppState:
    """Returns the state of an app from those of its replicas."""
    states = list(replicas)
    if all(map(is_terminal, states)):
        for state in (AppState.CANCELLED, AppState.FAILED):
            if state in states:
                return state
        return AppState.SUCCEEDED
    if AppState.RUNNING in states:
        return AppState.RUNNING
    # replicas that have ended say nothing of those that have not
    return min(state for state in states if not is_terminal(state))


def summary_state(summary: Mapping[str, Any]) -> AppState:
    """Returns the state of a replica from the engine's list of containers."""
    found = _EXIT_CODE.search(summary.get("Status", ""))
    code = int(found[1]) if found else None
    return replica_state(summary["State"], code, name_of(summary))


def name_of(summary: Mapping[str, Any]) -> str:
    """Returns the name of a container in the engine's list."""
    return str((summary.get("Names") or [""])[0]).lstrip("/")


def inspected_state(attrs: Mapping[str, Any]) -> AppState:
    """Returns the state of a replica from all that the engine knows of its container."""
    state = attrs["State"]
    return replica_state(state["Status"], state.get("ExitCode"), attrs["Name"].lstrip("/"))


def reason_of(attrs: Mapping[str, Any]) -> str:
    """Returns why a container is in its state, empty if there is nothing to say."""
    state = attrs["State"]
    status, code = state["Status"], int(state.get("ExitCode") or 0)
    words = []
    if state.get("OOMKilled"):
        limit = int(attrs.get("HostConfig", {}).get("Memory") or 0)
        words.append(f"OOMKilled: over its limit of {limit >> 20} MB" if limit else "OOMKilled")
    error = " ".join(str(state.get("Error") or "").split())
    if error:
        words.append(error)
    if status == "restarting":
        words.append(f"starts again after exit code {code}")
    elif status == "paused":
        words.append("paused")
    elif status in ("exited", "dead") and code and not words:
        signal = _SIGNALS.get(code - 128)
        words.append(f"exit code {code}" + (f" ({signal})" if signal else ""))
    if attrs["Name"].endswith(CANCELLED_SUFFIX) and status in _GONE:
        words.insert(0, "cancelled")
    return "; ".join(words)
