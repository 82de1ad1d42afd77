"""Starts an app with the option ``requeue`` again that ran when the machine restarted."""

from __future__ import annotations

import os
import time

from torchx_kit.jobs.attempts import committed_step, refusal
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, describe_starter
from torchx_sched_local.store.load_app import new_run
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.reap import end_processes, write_end
from torchx_sched_local.supervise.start_supervisor import CONFIRMATION, start_supervisor
from torchx_specs.errors import TorchXError
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal


def is_interrupted(run: AppRun) -> bool:
    """Return True if the machine restarted while an app ran, and the app does not run again yet."""
    was_restarted = bool(run.boot) and run.boot != process_table.boot_id()
    return was_restarted or (run.supervisor is None and run.num_restarts > 0)


def go_on(folder: AppFolder, app_id: str) -> None:
    """Start the next attempt of an interrupted app, or record why there is none.

    Args:
        folder: The app's folder.
        app_id: The app's id.

    Raises:
        OSError: The folder cannot be opened or written to.
        BackendError: A record cannot be read.
        BlockingIOError: Another process does the same.
    """
    try:
        folder.open_journal(blocking=False)
        data, request = folder.read_app(), folder.read_request()
        events, _, is_damaged = folder.read_events(0)
        if data is None or request is None or request.attempts is None or is_damaged:
            return
        run = new_run(data)
        for event in events:
            run.apply(event)
        if is_terminal(run.state) or not is_interrupted(run):
            return
        # When the attempt ended is unknown; it was before the machine started.
        when = max(time.time() - time.monotonic(), run.last_updated)
        events = []
        if run.supervisor is not None:
            events = [["attempt", "node-failure", committed_step(request.resume_dir), when]]
            run.apply(events[0])
        refused = refusal(
            request.attempts,
            [attempt.reason for attempt in run.ended_attempts],
            run.steps(),
            run.seconds_of_attempts(),
            max_retries=0,
            has_folder=request.resume_dir is not None,
        )
        known = {replica: replica.state for replica in run.replicas}
        if refused is not None:
            msg = f"the machine restarted while the app ran; {refused}"
            write_end(folder, run, known, (AppState.FAILED, msg), events)
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
                start_supervisor(folder, app_id, confirmation, confirm)
        except (OSError, TorchXError) as e:
            end_processes(app_id, starter["began"])
            msg = f"the machine restarted while the app ran, and it cannot start again: {e}"
            write_end(folder, run, known, (AppState.FAILED, msg), [])
    finally:
        folder.close()
