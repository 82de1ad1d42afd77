"""The file ``SUCCESS``, which says how an app has ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_sched_local.store.layout import SUCCESS
from torchx_specs.model.status import AppState

# what a subclass has started may have something else than a number for a pid
_encode_any = json.JSONEncoder(default=str).encode


def ended_replica(
    replica_id: int, pid: Any, exit_code: int | None, stdout: str, stderr: str, error_file: str
) -> dict[str, Any]:
    """Returns what the file that says how an app ended has of a replica."""
    return {
        "replica_id": replica_id,
        "pid": pid,
        "exitcode": exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "error_file": error_file,
    }


def write_success(
    folder: str,
    app_id: str,
    state: AppState,
    when: float,
    roles: Mapping[str, Iterable[dict[str, Any]]],
) -> None:
    """Writes the file that says how an app ended.

    Args:
        folder: the app's folder
        app_id: its id
        state: the state in which it ended
        when: when it did, in seconds since the epoch
        roles: its replicas, see :func:`ended_replica`

    Raises:
        OSError: it cannot be written
    """
    # a line for each field and replica: indenting it all takes much longer
    head = {
        "app_id": app_id,
        "log_dir": folder,
        "final_state": state.name,
        "last_updated": when,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    replicas = [
        f"    {json.dumps(role)}: [\n      " + ",\n      ".join(map(_encode_any, ended)) + "\n    ]"
        for role, ended in roles.items()
    ]
    lines.append('  "roles": {\n' + ",\n".join(replicas) + "\n  }")
    write_atomically(os.path.join(folder, SUCCESS), "{\n" + ",\n".join(lines) + "\n}", 0o666)
