"""The file ``SUCCESS``, which contains the outcome of an app for the scripts of users."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_sched_local.request import PopenRequest

# How many bytes a replica needs in both files without its paths, and the app needs.
_REPLICA_BYTES = 900
_APP_BYTES = 8192
#: How many characters of a replica's reason the file has.
LONGEST_REASON = 200
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


def encode_success(
    folder: str,
    app_id: str,
    state: AppState,
    when: float,
    roles: Mapping[str, Sequence[dict[str, Any]]],
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
    data = {
        "app_id": app_id,
        "log_dir": folder,
        "final_state": state.name,
        "last_updated": when,
        "message": message[:_LONGEST_MESSAGE],
        "num_restarts": num_restarts,
        "roles": roles,
    }
    # `default` is needed because in a subclass of the scheduler, a pid may be any object.
    return json.dumps(data, indent=2, default=str).encode()
