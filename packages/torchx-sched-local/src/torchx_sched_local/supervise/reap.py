"""Ends an app whose supervisor has died."""

from __future__ import annotations

import contextlib
import time

from torchx_kit.signals import describe_exit
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, Event, ReplicaRun
from torchx_sched_local.store.load_app import End, find_end, load_app, new_run
from torchx_sched_local.supervise.processes.process_table import exit_code_of_child
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, identify
from torchx_sched_local.supervise.processes.terminate import terminate_all
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState, is_terminal


def reap(folder: AppFolder, app_id: str, began: int) -> None:
    """End an app without a supervisor: terminate its processes, complete its logs, record the end.

    If the app's end is recorded already, do nothing. If the app's folder was deleted or cannot be
    used, only kill the app's processes.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        began: A time, as :func:`process_table.now`, before which no process of the app started.
    """
    try:
        is_recorded = record_end(folder, app_id, blocking=True)
    except (OSError, BackendError):
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
        True if the app's end is recorded now; False if this is not the folder of the app, or if the
        folder is being deleted.

    Raises:
        OSError: The folder cannot be opened or written to.
        BackendError: A record cannot be read.
        BlockingIOError: ``blocking`` is False, and another process does the same.
    """
    try:
        folder.open_journal(blocking)
        data = load_app(folder)
        if not folder.exists() or data["app_id"] != app_id:
            return False
        run = new_run(data)
        events, size, is_damaged = folder.read_events(0)
        is_damaged |= not size
        for event in events:
            is_damaged |= not run.apply(event)
        if not is_terminal(run.state):
            has_processes, exits = _end_processes(folder, run)
            known = {replica: replica.state for replica in run.replicas}
            end = find_end(folder, run, has_processes, is_damaged)
            write_end(folder, run, known, end, exits)
        return True
    finally:
        folder.close()


def _end_processes(folder: AppFolder, run: AppRun) -> tuple[bool, list[Event]]:
    """Terminate the processes of an app without a supervisor.

    Returns:
        Whether processes had to be terminated, and the exits of replicas that had ended before.
    """
    exits: list[Event] | None = None
    ended: set[ProcessId] = set()
    has_processes = False

    def find() -> set[ProcessId]:
        nonlocal exits, has_processes
        found = run.find_processes()
        if exits is None:  # no process was signalled yet
            for event in folder.new_cancellations():
                run.apply(event)
            exits = [] if run.is_cancelled() else _read_exits(run, ended)
            has_processes = bool(found - ended)
        return found

    terminate_all(find)
    return has_processes, exits or []


def _read_exits(run: AppRun, ended: set[ProcessId]) -> list[Event]:
    """Apply and return the exits of replicas that this process has inherited from the supervisor.

    Args:
        run: The app's state.
        ended: The processes that have ended are added to this set.
    """
    exits: list[Event] = []
    for i, replicas in enumerate(run.roles.values()):
        for k, replica in enumerate(replicas):
            process = replica.process
            if process is None or is_terminal(replica.state) or identify(process.pid) != process:
                continue
            code = exit_code_of_child(process.pid)
            if code is not None:
                state = AppState.FAILED if code else AppState.SUCCEEDED
                reason = describe_exit(code)
                exits.append(["exit", i, k, state.value, code, reason, None, time.time()])
                run.apply(exits[-1])
                ended.add(process)
    return exits


def write_end(
    folder: AppFolder,
    run: AppRun,
    known: dict[ReplicaRun, AppState],
    end: End,
    exits: list[Event],
) -> None:
    """Write the end of an app to the journal and to ``SUCCESS``.

    Args:
        folder: The app's folder.
        run: The app's state.
        known: The states of the replicas that the journal and ``exits`` have.
        end: How the app has ended.
        exits: Events that are not in the journal.
    """
    state, msg = end
    when = time.time()
    exits += [
        ["exit", i, k, replica.state.value, None, replica.reason, None, when]
        for i, replicas in enumerate(run.roles.values())
        for k, replica in enumerate(replicas)
        if replica.state != known[replica]
    ]
    request = folder.read_request()
    if request is not None:
        problem = _complete_logs(folder, request)
        msg = f"{msg}; its logs are incomplete: {problem}" if problem else msg
    folder.release_room()
    if request is not None:
        # The journal, written below, has the same information.
        with contextlib.suppress(OSError):
            folder.write_success(run, request, state, msg, when)
    folder.append([*exits, ["end", state.value, msg, when]])
    folder.sync()


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
