"""Ends an app whose supervisor has died."""

from __future__ import annotations

import time

from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, Event
from torchx_sched_local.store.load_app import find_end, load_app, load_request, new_run
from torchx_sched_local.supervise.terminate import terminate_all
from torchx_specs.model.status import is_terminal


def reap(folder: AppFolder, app_id: str, began: int) -> None:
    """End an app without a supervisor: terminate its processes, complete its logs, record the end.

    If the app has ended, or its folder was deleted, only its processes are terminated.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        began: A time, as :func:`process_table.now`, before which no process of the app started.
    """
    try:
        # The guard and a client may do this at the same time.
        is_recorded = record_end(folder, app_id, blocking=True)
    except OSError:
        is_recorded = False
    if not is_recorded:
        end_processes(app_id, began)


def end_processes(app_id: str, began: int) -> None:
    """Kill all processes of an app without looking at its folder, and wait until they have ended.

    Args:
        app_id: The app's id.
        began: A time, as :func:`process_table.now`, before which no process of the app started.
    """
    run = AppRun(app_id, {})
    run.starter_began = began
    terminate_all(run.find_processes, grace=0)


def record_end(folder: AppFolder, app_id: str, *, blocking: bool) -> bool:
    """End an app without a supervisor, unless its end is recorded already.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        blocking: Wait while another process does the same.

    Returns:
        False if this is not the folder of the app.

    Raises:
        OSError: The folder cannot be opened or written to.
        BlockingIOError: ``blocking`` is False, and another process does the same.
    """
    try:
        folder.open_journal()
        folder.lock(blocking)
        data = load_app(folder)
        if data is None or data["app_id"] != app_id:
            return False
        run = new_run(data)
        for event in folder.read_events(0)[0]:
            run.apply(event)
        if not is_terminal(run.state) and folder.read_success() is None:
            has_processes = bool(run.find_processes())
            terminate_all(run.find_processes)
            _write_end(folder, run, has_processes)
        return True
    finally:
        folder.close()


def _write_end(folder: AppFolder, run: AppRun, has_processes: bool) -> None:
    known = {replica: replica.state for replica in run.replicas}
    state, msg = find_end(folder, run, has_processes)
    when = time.time()
    events: list[Event] = [
        ["exit", i, k, replica.state.value, None, replica.reason, None, when]
        for i, replicas in enumerate(run.roles.values())
        for k, replica in enumerate(replicas)
        if replica.state != known[replica]
    ]
    request = load_request(folder, run)
    lost: OSError | None = None
    if request is not None:
        problem = _complete_logs(folder, request)
        msg = f"{msg}; its logs are incomplete: {problem}" if problem else msg
        try:
            folder.write_success(run, request, state, msg, when)
        except OSError as e:
            lost = e  # the journal has the same information
    try:
        folder.complete_last_line()
        folder.append([*events, ["end", state.value, msg, when]])
        folder.sync()
    except OSError:
        if lost is not None or request is None:
            raise


def _complete_logs(folder: AppFolder, request: PopenRequest) -> str:
    """Complete the combined logs of an ended app; return why that failed, or an empty text."""
    problem = ""
    for params in request.role_params.values():
        for param in params:
            if param.stdout and param.stderr and param.combined:
                logs = ReplicaLogs(folder.files, param.stdout, param.stderr, param.combined)
                try:
                    logs.recover()
                    logs.finish()
                except OSError as e:
                    problem = e.strerror or str(e)
    return problem
