"""Ends an app whose supervisor has died, or starts its next attempt."""

from __future__ import annotations

import os
import time

from torchx_kit.jobs.attempts import AttemptRules, committed_step
from torchx_kit.signals import describe_exit
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest
from torchx_sched_local.store.app_folder import AppFolder, rebuilt_app
from torchx_sched_local.store.app_run import DAMAGED, AppRun, Event, ReplicaRun, describe_starter
from torchx_sched_local.store.layout import SUCCESS
from torchx_sched_local.supervise.processes.process_table import boot_id, exit_code_of_child
from torchx_sched_local.supervise.processes.replica_processes import identify
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
    run = AppRun(rebuilt_app(app_id, {}))
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
        run, _ = folder.read()
        if not folder.exists() or run.app_id != app_id:
            return False
        if is_terminal(run.state):
            return True
        rules = None if run.request is None else run.request.attempts
        if rules is not None and run.was_interrupted() and not (run.is_damaged or must_end):
            _go_on(folder, run, rules)
            return True
        living = run.find_processes()
        run.apply_all(folder.new_cancellations())
        exits = [] if run.is_cancelled() else _read_exits(run)
        terminate_all(run.find_processes)
        ended = {run.replica(*exit[1:3]).process for exit in exits}
        has_processes = not living <= ended
        state, msg, failures = find_end(folder, run, has_processes=has_processes)
        _write_end(folder, run, state, msg, [*exits, *failures])
        return True
    finally:
        folder.close()


def _go_on(folder: AppFolder, run: AppRun, rules: AttemptRules) -> None:
    """Start the next attempt of an app that ran when the machine restarted, or record its end."""
    # When the attempt ended is unknown; it was before the machine started.
    when = max(time.time() - time.monotonic(), run.last_updated)
    events: list[Event] = []
    if run.supervisor is not None and len(run.ended_attempts) == run.num_restarts:
        events = [["attempt", "node-failure", committed_step(run.resume_dir), when]]
        run.apply_all(events)
    refused = run.refusal(rules, max_retries=0)
    if refused is not None:
        msg = f"the machine restarted while the app ran; {refused}"
        _write_end(folder, run, AppState.FAILED, msg, events)
        return
    if len(run.ended_attempts) > run.num_restarts:
        events.append(["retry", RetryPolicy.APPLICATION.value, when])
    starter = describe_starter()
    folder.append(*events, ["starter", starter, time.time()])
    reader, writer = os.pipe()
    try:
        with open(reader, "rb", 0) as confirmation, open(writer, "wb", 0) as confirm:
            # Confirmed before the start: an interrupt of this process must not end the app.
            confirm.write(CONFIRMATION)
            start_supervisor(folder, run.app_id, confirmation, confirm)
    except (OSError, TorchXError) as e:
        end_processes(run.app_id, starter["began"])
        msg = f"the machine restarted while the app ran, and it cannot start again: {e}"
        _write_end(folder, run, AppState.FAILED, msg, [])


def _read_exits(run: AppRun) -> list[Event]:
    """Apply and return the exits of replicas, which this process inherited from the supervisor."""
    exits: list[Event] = []
    for replica in run.replicas:
        process = replica.process
        if process is None or is_terminal(replica.state) or identify(process.pid) != process:
            continue
        code = exit_code_of_child(process.pid)
        if code is not None:
            state = AppState.FAILED if code else AppState.SUCCEEDED
            reason = describe_exit(code)
            exits.append(["exit", *replica.index, state.value, code, reason, None, time.time()])
    run.apply_all(exits)
    return exits


def find_end(
    folder: AppFolder, run: AppRun, *, has_processes: bool
) -> tuple[AppState, str, list[Event]]:
    """Return how an app without a supervisor ended, and why; also apply and return further exits.

    Args:
        folder: The app's folder.
        run: The app's state; its end is not recorded.
        has_processes: Whether living processes of the app were found and terminated.
    """
    # An end may have been recorded: SUCCESS is written just before.
    is_damaged = run.is_damaged or os.path.lexists(os.path.join(folder.path, SUCCESS))
    # Without a request, there may be more replicas than those in `run`.
    is_unknown = is_damaged and run.request is None
    if _has_succeeded(run.replicas, run.cancelled.get(None)) and not is_unknown:
        return AppState.SUCCEEDED, "", []
    if run.is_cancelled():
        return AppState.CANCELLED, "cancelled", []
    process = f" (process {run.supervisor.pid})" if run.supervisor else ""
    if run.boot and run.boot != boot_id() and not is_damaged:
        return AppState.FAILED, "the machine restarted while the app ran", []
    # A terminated process may write an error file too. So error files count only if no process had
    # to be terminated.
    exits = [] if has_processes else _read_error_files(run)
    failed = [r for r in run.replicas if r.state == AppState.FAILED]
    if failed and not has_processes and all(is_terminal(r.state) for r in run.replicas):
        msg = f"{failed[0].name}: {failed[0].reason}"
        retries = {role["name"]: role["max_retries"] for role in run.data["roles"]}
        if any(r.restarts < retries[r.role] for r in failed):
            msg += f"; its supervisor{process} was killed, so that it is not restarted"
        return AppState.FAILED, msg, exits
    if is_damaged:
        return AppState.CANCELLED, DAMAGED, exits
    return AppState.CANCELLED, f"ended with the program that started it{process}", exits


def _has_succeeded(replicas: list[ReplicaRun], cancelled_at: float | None) -> bool:
    """Return True if all replicas ended with exit code 0, and before the app was cancelled."""
    return bool(replicas) and all(
        replica.state == AppState.SUCCEEDED
        and (cancelled_at is None or 0.0 < replica.ended < cancelled_at)
        for replica in replicas
    )


def _read_error_files(run: AppRun) -> list[Event]:
    """Apply and return the ends of replicas that have written an error file."""
    exits: list[Event] = []
    params = {} if run.request is None else run.request.role_params
    for replica in run.replicas if params else ():
        path = params[replica.role][replica.id].env.get(ENV_ERROR_FILE)
        if replica.process and not is_terminal(replica.state) and path and os.path.isfile(path):
            end = [AppState.FAILED.value, None, f"its error is in {path}", None, time.time()]
            exits.append(["exit", *replica.index, *end])
    run.apply_all(exits)
    return exits


def _write_end(
    folder: AppFolder, run: AppRun, state: AppState, msg: str, events: list[Event]
) -> None:
    """Write the end of an app, and events before it, to the journal and to ``SUCCESS``."""
    when = time.time()
    problem = "" if run.request is None else _complete_logs(folder, run.request)
    msg = f"{msg}; its logs are incomplete: {problem}" if problem else msg
    folder.release_room()
    folder.write_success(run, state, msg, when)
    folder.append(*events, ["end", state.value, msg, when])
    folder.sync()


def _complete_logs(folder: AppFolder, request: PopenRequest) -> str:
    """Complete the combined logs of an ended app; return why that failed, or an empty text."""
    problem = ""
    for param in request.params:
        try:
            if (logs := ReplicaLogs.of(folder, param)) is not None:
                logs.recover()
                logs.merge(final=True)
        except OSError as e:
            problem = e.strerror or str(e)
    return problem
