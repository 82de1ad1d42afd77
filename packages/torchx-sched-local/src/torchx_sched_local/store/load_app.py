"""Loads an app from its folder; if a record is damaged, other records replace it."""

from __future__ import annotations

import os
from typing import Any

from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, ReplicaRun
from torchx_sched_local.supervise import process_table
from torchx_specs.model.status import AppState, is_terminal

#: How an app ended: its state, and why.
End = tuple[AppState, str]


def load_app(folder: AppFolder) -> dict[str, Any] | None:
    """Return an app with the keys of :meth:`AppFolder.read_app`, or None if no record is readable.

    If ``app.json`` is damaged, the roles come from the request or from the file ``SUCCESS``, and
    other keys are empty.

    Raises:
        BackendError: A file cannot be read.
    """
    data = folder.read_app()
    if data is not None and _is_valid(data):
        return data
    request = folder.read_request()
    if request is not None:
        counts = {role: len(params) for role, params in request.role_params.items()}
        return _rebuilt(folder, request.app_id, counts)
    outcome = folder.read_success()
    if outcome is None:
        return None
    counts = {role: len(replicas) for role, replicas in outcome.roles.items()}
    return _rebuilt(folder, outcome.app_id, counts)


def load_request(folder: AppFolder, run: AppRun) -> PopenRequest | None:
    """Return the request of an app, or None if it is missing, damaged, or has other replicas.

    Args:
        folder: The app's folder.
        run: The app's state.

    Raises:
        BackendError: The file cannot be read.
    """
    request = folder.read_request()
    if request is None:
        return None
    counts = {role: len(params) for role, params in request.role_params.items()}
    same = counts == {role: len(replicas) for role, replicas in run.roles.items()}
    return request if same else None


def new_run(data: dict[str, Any]) -> AppRun:
    """Return the state of an app of which nothing was started.

    Args:
        data: The app, from :func:`load_app`.
    """
    run = AppRun(data["app_id"], {r["name"]: r["replicas"] for r in data["roles"]})
    if data["starter"] is not None:
        run.started_by(data["starter"])
    return run


def may_retry(data: dict[str, Any]) -> bool:
    """Return True if a replica of the app may be restarted."""
    return any(role["max_retries"] != 0 for role in data["roles"])


def find_end(folder: AppFolder, run: AppRun, has_processes: bool) -> End:
    """Return how an app without a supervisor ended; may change the states of its replicas.

    Args:
        folder: The app's folder.
        run: The app's state; its end is not recorded.
        has_processes: Whether processes of the app were left, which have to be terminated.
    """
    if run.boot and run.boot != process_table.boot_id():
        return AppState.FAILED, "the machine restarted while the app ran"
    if folder.is_cancelled():
        return AppState.CANCELLED, "cancelled"
    replicas = run.replicas
    if not has_processes:
        # Terminated processes write error files too, so these count only without processes.
        _fail_by_error_files(load_request(folder, run), replicas)
        failed = [r for r in replicas if r.state == AppState.FAILED]
        if failed and all(is_terminal(r.state) for r in replicas):
            return AppState.FAILED, f"{failed[0].role}/{failed[0].id}: {failed[0].reason}"
        if replicas and all(r.state == AppState.SUCCEEDED for r in replicas):
            return AppState.SUCCEEDED, ""
    process = f" (process {run.supervisor.pid})" if run.supervisor else ""
    return AppState.CANCELLED, f"ended with the program that started it{process}"


def _fail_by_error_files(request: PopenRequest | None, replicas: list[ReplicaRun]) -> None:
    if request is None:
        return
    for replica in replicas:
        path = request.role_params[replica.role][replica.id].env.get(ENV_ERROR_FILE)
        if replica.process and not is_terminal(replica.state) and path and os.path.isfile(path):
            replica.state = AppState.FAILED
            replica.reason = f"its error is in {path}"


def _is_valid(data: dict[str, Any]) -> bool:
    try:
        run = new_run(data)
        roles = data["roles"]
        texts = [data[key] for key in ("app_id", "session", "name")]
        return (
            bool(run.roles)
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(role["max_retries"], int) for role in roles)
            and isinstance(data["appdef"], (dict, type(None)))
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return False  # written by another version


def _rebuilt(folder: AppFolder, app_id: str, counts: dict[str, int]) -> dict[str, Any]:
    parent = os.path.dirname(folder.path)
    return {
        "app_id": app_id,
        "session": os.path.basename(parent),
        "name": app_id,
        "created": 0.0,
        "starter": None,
        "appdef": None,
        "fail_together": False,
        # It is not known whether replicas may be restarted.
        "roles": [
            {"name": name, "replicas": count, "max_retries": -1, "retry_policy": "APPLICATION"}
            for name, count in counts.items()
        ],
    }
