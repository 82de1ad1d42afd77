"""Ending an app whose supervisor has died."""

from __future__ import annotations

import time

from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun
from torchx_sched_local.supervise.terminate import end_all
from torchx_specs.model.status import AppState, is_terminal


def reap(folder: AppFolder) -> None:
    """Ends an app that nobody supervises any more: its processes, its logs, its records.

    Does nothing if the app has ended.
    """
    data = folder.read_app()
    if data is None:
        return
    try:
        folder.open_journal()
    except OSError:
        return  # deleted
    try:
        folder.lock()  # two may have noticed
        run = AppRun(data["app_id"], {r["name"]: r["replicas"] for r in data["roles"]})
        for event in folder.read_events(0)[0]:
            run.apply(event)
        if not is_terminal(run.state):
            end_all(run.find_processes)
            _write_end(folder, run)
    finally:
        folder.close()


def _write_end(folder: AppFolder, run: AppRun) -> None:
    request = folder.read_request()
    when = time.time()
    state, msg = AppState.CANCELLED, "cancelled"
    if not folder.is_cancelled():
        who = f" (process {run.supervisor.pid})" if run.supervisor else ""
        msg = f"ended with the program that had started it{who}"
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
