"""Writes the file ``SUCCESS``, which contains the outcome of an app."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_sched_local.store.layout import SUCCESS
from torchx_specs.model.status import AppState

# If a subclass starts processes, a pid may be an object that is not a number.
_encode_replica = json.JSONEncoder(default=str).encode


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


def write_success_file(
    folder: str,
    app_id: str,
    state: AppState,
    when: float,
    roles: Mapping[str, Iterable[dict[str, Any]]],
) -> None:
    """Write the file ``SUCCESS``.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        state: The app's final state.
        when: When the app ended, in seconds since 1970.
        roles: For each role the entries of its replicas, as :func:`replica_entry` returns them.

    Raises:
        OSError: The file cannot be written.
    """
    # One line for each field and replica: json.dumps with an indent takes much longer.
    head = {
        "app_id": app_id,
        "log_dir": folder,
        "final_state": state.name,
        "last_updated": when,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    replicas = [
        f"    {json.dumps(role)}: [\n      "
        + ",\n      ".join(map(_encode_replica, entries))
        + "\n    ]"
        for role, entries in roles.items()
    ]
    lines.append('  "roles": {\n' + ",\n".join(replicas) + "\n  }")
    write_atomically(os.path.join(folder, SUCCESS), "{\n" + ",\n".join(lines) + "\n}", 0o666)
