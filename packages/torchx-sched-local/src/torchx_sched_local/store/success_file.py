"""The file ``SUCCESS``, which contains the outcome of an app for the scripts of users."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_local.store.app_run import ReplicaRun
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_local.request import PopenRequest

# `default` is needed because in a subclass of the scheduler, a pid may be any object.
_encode_replica = json.JSONEncoder(default=str).encode
# How many bytes a replica needs in both files without its paths, and the app needs.
_REPLICA_BYTES = 800
_APP_BYTES = 8192
_LONGEST_REASON = 200
_LONGEST_MESSAGE = 1000


def room_for(request: PopenRequest) -> int:
    """Return how many bytes the end of an app needs at most, in ``SUCCESS`` and in the journal.

    The reasons in both files must be short and ASCII.
    """
    size = _APP_BYTES + 2 * len(request.log_dir)
    for role, params in request.role_params.items():
        size += 100 + 6 * len(role)
        for param in params:
            size += _REPLICA_BYTES + 2 * len(param.stdout or "") + len(param.stderr or "")
    return size


def replica_entry(
    replica_id: int, pid: Any, exit_code: int | None, stdout: str, stderr: str, error_file: str
) -> dict[str, Any]:
    """Return the entry of a replica in the file ``SUCCESS``."""
    return {
        "replica_id": replica_id,
        "pid": pid,
        "exitcode": exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "error_file": error_file,
    }


def state_entry(replica: ReplicaRun) -> dict[str, Any]:
    """Return the fields that :func:`replica_entry` lacks: final state, reason and restarts."""
    return {
        "state": replica.state.name if is_terminal(replica.state) else AppState.CANCELLED.name,
        "reason": replica.reason[:_LONGEST_REASON],
        "restarts": replica.restarts,
    }


def encode_success(
    folder: str,
    app_id: str,
    state: AppState,
    when: float,
    roles: Mapping[str, Iterable[dict[str, Any]]],
    message: str = "",
    num_restarts: int = 0,
) -> bytes:
    """Return the content of the file ``SUCCESS``.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        state: The app's final state.
        when: When the app ended, in seconds since 1970.
        roles: For each role the entries of its replicas, as :func:`replica_entry` returns them.
        message: Why the app is in this state.
        num_restarts: How many times a replica, a role or the app was restarted.
    """
    # Write one line for each field and replica; json.dumps with an indent would take much longer.
    head = {
        "app_id": app_id,
        "log_dir": folder,
        "final_state": state.name,
        "last_updated": when,
        "message": message[:_LONGEST_MESSAGE],
        "num_restarts": num_restarts,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    replicas = [
        f"    {json.dumps(role)}: [\n      "
        + ",\n      ".join(map(_encode_replica, entries))
        + "\n    ]"
        for role, entries in roles.items()
    ]
    lines.append('  "roles": {\n' + ",\n".join(replicas) + "\n  }")
    return ("{\n" + ",\n".join(lines) + "\n}").encode()
