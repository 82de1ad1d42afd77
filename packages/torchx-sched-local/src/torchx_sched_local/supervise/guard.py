"""The guard of an app: a small process that ends the app if its supervisor dies, even by SIGKILL.

The guard reads from a pipe whose other end only the supervisor has open. A line on the pipe means
that the app has ended. The end of the pipe without a line means that the supervisor has died. The
guard is a shell, which starts within a millisecond and needs little memory. If the supervisor dies,
the shell replaces itself with Python (:mod:`~torchx_sched_local.supervise.start_supervisor`),
which ends the app's processes and completes the app's logs. The guard of a supervisor process is
its parent, so that exit codes are not lost. If the guard has died too, the next process that reads
the app does the same, or starts the app's next attempt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable

from torchx_kit.jobs.attempts import AttemptRules, committed_step
from torchx_kit.signals import describe_exit
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import ENV_ERROR_FILE
from torchx_sched_local.store.app_folder import AppFolder, rebuilt_app
from torchx_sched_local.store.app_run import DAMAGED, AppRun, describe_starter
from torchx_sched_local.store.layout import SUCCESS
from torchx_sched_local.supervise.processes.process_table import boot_id, exit_code_of_child
from torchx_sched_local.supervise.processes.replica_processes import identify, terminate_all
from torchx_sched_local.supervise.start_supervisor import (
    CONFIRMATION,
    python_command,
    start_supervisor,
)
from torchx_specs.errors import BackendError, TorchXError
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

# The guard ignores these signals: a terminal or a batch system may send them to all processes.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_SCRIPT = """trap '' HUP INT TERM QUIT; IFS= read -r word && exit 0; exec "$@" """


class Guard:
    """The guard of one app.

    Args:
        folder: The app's folder, whose journal is locked.
        app_id: The app's id; the guard can end the app even if the folder was deleted.
        began: A time, as :func:`process_table.now`, before which no process of the app started.

    Attributes:
        pid: The guard's process id.

    Raises:
        OSError: The guard cannot be started.
    """

    def __init__(self, folder: AppFolder, app_id: str, began: int) -> None:
        journal = folder.fileno()
        command = python_command("reap", folder.path, str(journal), app_id, str(began))
        reader, self._pipe = os.pipe()
        # Block the signals until the shell ignores them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "torchx-guard", *command],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # The variables of this process may have the token of a local job that runs it.
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(journal,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(reader)
        self.pid = self._process.pid

    def dismiss(self) -> None:
        """End the guard, because its app has ended; may be called more than once."""
        with contextlib.suppress(OSError):  # the pipe is closed, or the guard was killed
            os.write(self._pipe, b"bye\n")
        self.close_pipe()

    def wait(self) -> None:
        """Wait until the guard has ended."""
        self._process.wait()

    def close_pipe(self) -> None:
        """Close this process's end of the pipe; may be called more than once.

        If no fork of this process has the pipe open, and the guard was not dismissed, the guard
        ends the app, as if this process had died.
        """
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


class ParentGuard(Guard):
    """A guard that is the parent of this process, so that it also reads exit codes.

    The process that creates this object becomes the guard, and its caller continues in a child. If
    the child dies, the guard inherits the replicas, because it adopts orphans, and records how they
    have ended.

    Args:
        end_app: Ends the app, as the program of a :class:`Guard`.
        files: Descriptors that only the child needs.

    Raises:
        OSError: This process cannot be forked.
    """

    def __init__(self, end_app: Callable[[], object], files: Iterable[int]) -> None:
        reader, self._pipe = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        if os.fork():
            for fd in (self._pipe, *files):
                os.close(fd)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            os.chdir("/")
            if not os.read(reader, 1):
                end_app()
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reader)

    def wait(self) -> None:
        """Return at once: a process cannot wait for its parent."""


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
        run = folder.read()
        if not folder.exists() or run.app_id != app_id:
            return False
        if is_terminal(run.state):
            return True
        rules = None if run.request is None else run.request.attempts
        if rules is not None and run.was_interrupted() and not (run.is_damaged or must_end):
            _go_on(folder, rules)
            return True
        living = run.find_processes()
        folder.read_cancellations()
        if not run.is_cancelled():
            _read_exits(folder)
        terminate_all(run.find_processes)
        ended = {replica.process for replica in run.replicas if is_terminal(replica.state)}
        _write_end(folder, *find_end(folder, has_processes=not living <= ended))
        return True
    finally:
        folder.close()


def _go_on(folder: AppFolder, rules: AttemptRules) -> None:
    """Start the next attempt of an app that ran when the machine restarted, or record its end."""
    run = folder.run
    # When the attempt ended is unknown; it was before the machine started.
    when = max(time.time() - time.monotonic(), run.last_updated)
    if run.supervisor is not None and len(run.ended_attempts) == run.num_restarts:
        step = committed_step(run.resume_dir)
        folder.record(["attempt", "node-failure", step, when])
    refused = run.refusal(rules, max_retries=0)
    if refused is not None:
        _write_end(folder, AppState.FAILED, f"the machine restarted while the app ran; {refused}")
        return
    if len(run.ended_attempts) > run.num_restarts:
        folder.record(["retry", RetryPolicy.APPLICATION.value, when])
    folder.record(["starter", describe_starter(), time.time()])
    folder.flush()
    reader, writer = os.pipe()
    try:
        with open(reader, "rb", 0) as confirmation, open(writer, "wb", 0) as confirm:
            # Confirmed before the start: an interrupt of this process must not end the app.
            confirm.write(CONFIRMATION)
            start_supervisor(folder, confirmation, confirm)
    except (OSError, TorchXError) as e:
        terminate_all(run.find_processes, grace=0)
        msg = f"the machine restarted while the app ran, and it cannot start again: {e}"
        _write_end(folder, AppState.FAILED, msg)


def _read_exits(folder: AppFolder) -> None:
    """Record the exits of replicas, which this process inherited from the supervisor."""
    for replica in folder.run.replicas:
        process = replica.process
        if process is None or is_terminal(replica.state) or identify(process.pid) != process:
            continue
        code = exit_code_of_child(process.pid)
        if code is not None:
            state = AppState.FAILED if code else AppState.SUCCEEDED
            folder.record_exit(replica, state, code, describe_exit(code))


def find_end(folder: AppFolder, *, has_processes: bool) -> tuple[AppState, str]:
    """Return how an app without a supervisor ended, and why; also record exits that it finds.

    Args:
        folder: The app's folder, which was read; the app's end is not recorded.
        has_processes: Whether living processes of the app were found and terminated.
    """
    run = folder.run
    # An end may have been recorded: SUCCESS is written just before.
    is_damaged = run.is_damaged or os.path.lexists(os.path.join(folder.path, SUCCESS))
    # Without a request, there may be more replicas than those in `run`.
    is_unknown = is_damaged and run.request is None
    # A replica has this state only if it ended before a signal of a cancellation was sent.
    has_succeeded = {replica.state for replica in run.replicas} == {AppState.SUCCEEDED}
    if has_succeeded and not is_unknown:
        return AppState.SUCCEEDED, ""
    if run.is_cancelled():
        return AppState.CANCELLED, "cancelled"
    process = f" (process {run.supervisor.pid})" if run.supervisor else ""
    if run.boot and run.boot != boot_id() and not is_damaged:
        return AppState.FAILED, "the machine restarted while the app ran"
    # A terminated process may write an error file too. So error files count only if no process had
    # to be terminated.
    if not has_processes:
        _read_error_files(folder)
    failed = [r for r in run.replicas if r.state == AppState.FAILED]
    if failed and not has_processes and all(is_terminal(r.state) for r in run.replicas):
        msg = f"{failed[0].name}: {failed[0].reason}"
        retries = {role["name"]: role["max_retries"] for role in run.data["roles"]}
        if any(r.restarts < retries[r.role] for r in failed):
            msg += f"; its supervisor{process} was killed, so that it is not restarted"
        return AppState.FAILED, msg
    if is_damaged:
        return AppState.CANCELLED, DAMAGED
    return AppState.CANCELLED, f"ended with the program that started it{process}"


def _read_error_files(folder: AppFolder) -> None:
    """Record the ends of replicas that have written an error file."""
    run = folder.run
    params = {} if run.request is None else run.request.role_params
    for replica in run.replicas if params else ():
        path = params[replica.role][replica.id].env.get(ENV_ERROR_FILE)
        if replica.process and not is_terminal(replica.state) and path and os.path.isfile(path):
            folder.record_exit(replica, AppState.FAILED, None, f"its error is in {path}")


def _write_end(folder: AppFolder, state: AppState, msg: str) -> None:
    """Complete the logs of an app, and write its end to the journal and to ``SUCCESS``."""
    request = folder.run.request
    problem = ""
    for param in request.params if request else ():
        try:
            if (logs := ReplicaLogs.of(folder, param)) is not None:
                logs.recover()
                logs.merge(final=True)
        except OSError as e:
            problem = f"; its logs are incomplete: {e.strerror or e}"
    folder.write_end(state, msg + problem)
    folder.sync()
