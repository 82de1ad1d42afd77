"""Ends an app whose supervisor has died."""

from __future__ import annotations

import time

from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise.terminate import terminate_all
from torchx_specs.model.status import AppState, is_terminal


def reap(folder: AppFolder) -> None:
    """End an app without a supervisor: terminate its processes, complete its logs, record the end.

    Nothing happens if the app has ended.

    Args:
        folder: The app's folder.
    """
    data = folder.read_app()
    if data is None:
        return
    try:
        folder.open_journal()
    except OSError:
        return  # the app was deleted
    try:
        folder.lock()  # the guard and a client may do this at the same time
        run = AppRun(data["app_id"], {r["name"]: r["replicas"] for r in data["roles"]})
        for event in folder.read_events(0)[0]:
            run.apply(event)
        if not is_terminal(run.state):
            terminate_all(run.find_processes)
            _write_end(folder, run)
    finally:
        folder.close()


def _write_end(folder: AppFolder, run: AppRun) -> None:
    request = folder.read_request()
    when = time.time()
    state, msg = AppState.CANCELLED, "cancelled"
    if not folder.is_cancelled():
        process = f" (process {run.supervisor.pid})" if run.supervisor else ""
        msg = f"ended with the program that started it{process}"
    if request is not None:
        for params in request.role_params.values():
            for param in params:
                if param.stdout and param.stderr and param.combined:
                    logs = ReplicaLogs(param.stdout, param.stderr, param.combined)
                    try:
                        logs.recover()
                        logs.finish()
                    except OSError as e:
                        msg = f"{msg}; its logs are incomplete: {e.strerror or e}"
        run.apply(["end", state.value, msg, when])
        try:
            folder.write_success(run, request, state, when)
        except OSError:
            pass
    folder.append([["end", state.value, msg, when]])
