"""Ends an app whose supervisor has died, or starts its next attempt."""

from __future__ import annotations

import contextlib
import os
import time

from torchx_kit.jobs.attempts import AttemptRules, committed_step, refusal
from torchx_kit.signals import describe_exit
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, Event, ReplicaRun, describe_starter
from torchx_sched_local.store.load_app import End, find_end, load_app, new_run
from torchx_sched_local.supervise.processes.process_table import exit_code_of_child
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, identify
from torchx_sched_local.supervise.processes.terminate import terminate_all
from torchx_sched_local.supervise.start_supervisor import CONFIRMATION, start_supervisor
from torchx_specs.errors import BackendError, TorchXError
from torchx_specs.model.app import RetryPolicy
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
        is_recorded = settle(folder, app_id, must_end=True)
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


def settle(folder: AppFolder, app_id: str, *, must_end: bool) -> bool:
    """End an app without a supervisor, unless its end is recorded already.

    An app with the option ``requeue`` that ran when the machine restarted is started again, unless
    it must end.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        must_end: Whether the app must end. If so, wait while another process does the same.

    Returns:
        False if this is not the folder of the app, or if the folder is being deleted.

    Raises:
        OSError: The folder cannot be opened or written to.
        BackendError: A record cannot be read.
        BlockingIOError: ``must_end`` is False, and another process does the same.
    """
    try:
        folder.open_journal(blocking=must_end)
        data = load_app(folder)
        if not folder.exists() or data["app_id"] != app_id:
            return False
        run, request = new_run(data), folder.read_request()
        events, size, is_damaged = folder.read_events(0)
        is_damaged |= not run.apply_all(events) or not size
        if is_terminal(run.state):
            return True
        rules = None if request is None or is_damaged or must_end else request.attempts
        if request is not None and rules is not None and run.was_interrupted():
            _go_on(folder, run, request, rules)
            return True
        has_processes, exits = _end_processes(folder, run)
        known = {replica: replica.state for replica in run.replicas}
        end = find_end(folder, run, has_processes, is_damaged)
        _write_end(folder, run, known, end, exits)
        return True
    finally:
        folder.close()


def _go_on(folder: AppFolder, run: AppRun, request: PopenRequest, rules: AttemptRules) -> None:
    """Start the next attempt of an app that ran when the machine restarted, or record its end."""
    # When the attempt ended is unknown; it was before the machine started.
    when = max(time.time() - time.monotonic(), run.last_updated)
    events: list[Event] = []
    if run.supervisor is not None:
        events = [["attempt", "node-failure", committed_step(request.resume_dir), when]]
        run.apply_all(events)
    refused = refusal(
        rules,
        [attempt.reason for attempt in run.ended_attempts],
        run.steps(),
        run.seconds_of_attempts(),
        max_retries=0,
        has_folder=request.resume_dir is not None,
    )
    known = {replica: replica.state for replica in run.replicas}
    if refused is not None:
        msg = f"the machine restarted while the app ran; {refused}"
        _write_end(folder, run, known, (AppState.FAILED, msg), events)
        return
    if events:
        events.append(["retry", RetryPolicy.APPLICATION.value, when])
    starter = describe_starter()
    folder.append([*events, ["starter", starter, time.time()]])
    reader, writer = os.pipe()
    try:
        with open(reader, "rb", 0) as confirmation, open(writer, "wb", 0) as confirm:
            # Confirmed before the start: an interrupt of this process must not end the app.
            confirm.write(CONFIRMATION)
            start_supervisor(folder, run.app_id, confirmation, confirm)
    except (OSError, TorchXError) as e:
        end_processes(run.app_id, starter["began"])
        msg = f"the machine restarted while the app ran, and it cannot start again: {e}"
        _write_end(folder, run, known, (AppState.FAILED, msg), [])


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


def _write_end(
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
