"""Loads an app from its folder, and finds out how an app without a recorded end has ended."""

from __future__ import annotations

import os
from typing import Any

from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import DAMAGED, AppRun, ReplicaRun
from torchx_sched_local.supervise.processes import process_table
from torchx_specs.model.status import AppState, is_terminal

#: How an app ended: its state, and why.
End = tuple[AppState, str]


def load_app(folder: AppFolder) -> dict[str, Any]:
    """Return an app with the keys of :meth:`AppFolder.read_app`.

    If the record of the app is damaged, the roles come from the request or from the folders of the
    replicas, and other keys are empty.

    Raises:
        BackendError: The journal cannot be read.
    """
    data = folder.read_app()
    if data is not None:
        return data
    request = folder.read_request()
    if request is not None:
        counts = {role: len(params) for role, params in request.role_params.items()}
        return _rebuilt(folder, request.app_id, counts)
    return _rebuilt(folder, os.path.basename(folder.path), folder.count_replicas())


def new_run(data: dict[str, Any]) -> AppRun:
    """Return the state of an app before its first process starts.

    Args:
        data: The app, from :func:`load_app`.
    """
    run = AppRun(data["app_id"], {r["name"]: r["replicas"] for r in data["roles"]})
    if data["starter"] is not None:
        run.started_by(data["starter"])
    run.created = data["created"]
    return run


def may_retry(data: dict[str, Any]) -> bool:
    """Return True if a replica of the app may be restarted."""
    return any(role["max_retries"] != 0 for role in data["roles"]) or bool(data.get("requeue"))


def find_end(folder: AppFolder, run: AppRun, has_processes: bool, is_damaged: bool) -> End:
    """Return how an app without a supervisor ended; may change the states of its replicas.

    Args:
        folder: The app's folder.
        run: The app's state; its end is not recorded.
        has_processes: Whether living processes of the app were found and terminated.
        is_damaged: Whether records of the app are damaged. Then an end may have been recorded.
    """
    # SUCCESS is written just before the end is recorded.
    is_damaged = is_damaged or folder.has_success()
    request = folder.read_request()
    is_unknown = is_damaged and request is None  # there may be more replicas than those in `run`
    if _has_succeeded(run.replicas, run.cancelled.get(None)) and not is_unknown:
        return AppState.SUCCEEDED, ""
    if run.is_cancelled():
        return AppState.CANCELLED, "cancelled"
    process = f" (process {run.supervisor.pid})" if run.supervisor else ""
    if run.boot and run.boot != process_table.boot_id() and not is_damaged:
        return AppState.FAILED, "the machine restarted while the app ran"
    replicas = run.replicas
    if not has_processes:
        # A terminated process may write an error file too. So error files count only if no process
        # had to be terminated.
        _fail_by_error_files(request, replicas)
        failed = [r for r in replicas if r.state == AppState.FAILED]
        if failed and all(is_terminal(r.state) for r in replicas):
            msg = f"{failed[0].role}/{failed[0].id}: {failed[0].reason}"
            retries = {role["name"]: role["max_retries"] for role in load_app(folder)["roles"]}
            if any(r.restarts < retries.get(r.role, 0) for r in failed):
                msg += f"; its supervisor{process} was killed, so that it is not restarted"
            return AppState.FAILED, msg
    if is_damaged:
        return AppState.CANCELLED, DAMAGED
    return AppState.CANCELLED, f"ended with the program that started it{process}"


def _has_succeeded(replicas: list[ReplicaRun], cancelled_at: float | None) -> bool:
    """Return True if all replicas ended with exit code 0, and before the app was cancelled."""
    return bool(replicas) and all(
        replica.state == AppState.SUCCEEDED
        and (cancelled_at is None or 0.0 < replica.ended < cancelled_at)
        for replica in replicas
    )


def _fail_by_error_files(request: PopenRequest | None, replicas: list[ReplicaRun]) -> None:
    if request is None:
        return
    for replica in replicas:
        path = request.role_params[replica.role][replica.id].env.get(ENV_ERROR_FILE)
        if replica.process and not is_terminal(replica.state) and path and os.path.isfile(path):
            replica.state = AppState.FAILED
            replica.reason = f"its error is in {path}"


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
        # It is not known whether replicas may be restarted; -1 makes may_retry() return True.
        "roles": [
            {"name": name, "replicas": count, "max_retries": -1, "retry_policy": "APPLICATION"}
            for name, count in counts.items()
        ],
    }
