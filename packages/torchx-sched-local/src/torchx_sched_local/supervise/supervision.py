"""Supervises one app, from the start of its first process to the end of the app.

For an attached app, a supervision runs in a thread of the launcher; for a detached app, it runs in
a separate process. The reactor's thread calls all methods, unless a method's docstring says
otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from io import FileIO
from typing import Any

from torchx_kit.jobs.attempts import AttemptRules, committed_step, is_requested
from torchx_kit.secrets import resolve_secrets, with_values, without_secrets
from torchx_kit.signals import describe_exit
from torchx_sched_local.build_request import process_path
from torchx_sched_local.cuda import GpuClaims
from torchx_sched_local.errors import PROGRAM_ERRORS, folder_error, is_temporary
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, ReplicaParam
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import ReplicaRun
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes import process_table, replica_processes
from torchx_sched_local.supervise.processes.replica_processes import (
    ProcessId,
    identify,
    identify_child,
)
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.replicas import _LocalAppDef, _LocalReplica, end_apps
from torchx_specs.errors import BackendError, RequestError, TorchXError
from torchx_specs.latch import Latch
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.settings import (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_RESTART_REASON,
    ENV_TORCHX_STOP_GRACE,
)

#: The variable with the index of the replica in its role.
ENV_REPLICA_ID = "TORCHX_REPLICA_ID"
#: The variable with the number of restarts, 0 for the first attempt.
ENV_RESTART_COUNT = "TORCHX_RESTART_COUNT"
#: Starts a replica: called with the name of its role, its index, and how to start it.
Popen = Callable[[str, int, ReplicaParam], _LocalReplica]

# The exit codes of a preempted replica: on this machine, only SIGTERM announces a preemption. A
# shell turns this signal into an exit code.
_PREEMPTED = (-signal.SIGTERM, 128 + signal.SIGTERM)
# The pause between two looks at the logs of all running replicas, in seconds. If they are many, the
# pause grows with their number, so that the looks take at most one percent of a processor.
_MERGE_SECONDS = 0.02
_MERGE_SECONDS_PER_LOG = 0.0005
# How long a killed process may take to end: it does not end while it waits for a disk.
_KILL_SECONDS = 20.0
# How often to try to start a replica that waits for a GPU, or for other resources of the machine.
_START_SECONDS = 0.5
# How often to check whether a process has ended that has no pidfd.
_EXIT_POLL_SECONDS = 0.05

# The supervisions of this process whose apps have not ended.
_supervisions: set[Supervision] = set()


@dataclass
class SupervisedParam(ReplicaParam):
    """How to start a replica whose logs a supervision merges.

    Attributes:
        environ: The inherited environment.
        open_log: Opens a log file of the app, or returns None for None.
        is_restart: Whether the log files exist already.
    """

    environ: dict[str, str] | None = None
    open_log: Callable[[str | None], FileIO | None] | None = None
    is_restart: bool = False


@dataclass(eq=False)
class _Operation:
    """The termination of some replicas, and the function to call afterwards.

    Attributes:
        replicas: The replicas.
        reason: Why they are terminated.
        then: Called once all processes of the replicas have ended.
        state: The state of the replicas afterwards.
    """

    replicas: set[ReplicaRun]
    reason: str
    then: Callable[[], None]
    state: AppState


class Supervision:
    """Supervises an app.

    Args:
        folder: The app's folder, with the app's state.
        request: The app's request.
        popen: Starts a replica.
        local_app: Receives the started replicas and the final state.
        parent: The guard, if it is the parent of this process, all of whose descendants then belong
            to the app; None for a new guard.

    Attributes:
        run: The app's state.
        folder: The app's folder.
        guard: The guard.
        reactor: The event loop. If the guard is the parent, the caller runs it; else, a thread.
        owner: The process that supervises the app, and not a fork of it.
        ended: Set once the app has ended and everything was recorded.

    Raises:
        RequestError: A secret is missing, or is not protected from other users.
        OSError: The guard cannot be started.
    """

    def __init__(
        self,
        folder: AppFolder,
        request: PopenRequest,
        popen: Popen,
        local_app: _LocalAppDef,
        parent: Guard | None = None,
    ) -> None:
        self.run = folder.run
        self.folder = folder
        self.owner = os.getpid()
        self.ended = Latch()
        self._request = request
        self._adopts = parent is not None
        self._policies = {role["name"]: role for role in folder.run.data["roles"]}
        self._popen = popen
        self._local_app = local_app
        # The secrets are read once, for all replicas and restarts. The values are only in the
        # memory of this process and in the environments of the replicas.
        envs = {id(param.env): param.env for param in request.params}
        self._secrets = resolve_secrets(envs.values())
        # Copy the environment once: a copy takes longer than starting a process.
        self._environ = without_secrets(os.environ)
        self._gpus = GpuClaims(request)
        self._starts_later = False
        self._running: dict[ReplicaRun, Any] = {}
        self._operations: list[_Operation] = []
        self._retries: dict[object, int] = {}
        self._waiting = deque(self.run.replicas)
        # The replicas of the roles whose success ends the app.
        self._deciding = [r for r in self._waiting if self._policies[r.role]["ends_app"]]
        # The replicas whose folders were made.
        self._prepared: set[ReplicaRun] = set()
        self._logs: dict[ReplicaRun, ReplicaLogs] = {}
        self._problems: dict[str, None] = {}
        # The replicas that have failed and have no retries left.
        self._failed: set[ReplicaRun] = set()
        self._is_cancelled = False
        self._cancels_itself = False
        self.reactor = Reactor()
        # The guard starts before the first replica, so that no replica is ever without a guard.
        self.guard = parent or Guard(folder, self.run.app_id, self.run.begun)
        local_app.supervision = self

    # -- The methods below start replicas.

    def start(self) -> None:
        """Start the replicas that may start now.

        A replica whose program cannot be run is recorded as failed if other replicas run, or if the
        app is an array. If this method raises an error, all started processes have been killed. If
        it is interrupted, the guard ends the app.

        Raises:
            RequestError: None of the programs can be run, or the app's folder cannot be written.
            BackendError: The machine cannot run so many processes, or has another problem.
            OSError: The first events cannot be written.
        """
        _supervisions.add(self)
        now = time.time()
        self.folder.record(
            ["supervisor", *identify(os.getpid()), self.run.boot, self.run.node, now]
        )
        if self._request.attempts and not self.run.ended_attempts:
            self.folder.record(["resume", committed_step(self.run.resume_dir), now])
        try:
            if not self._adopts:
                # The thread starts first: if it cannot, no process has been started.
                thread = threading.Thread(target=self.reactor.run, name="torchx-local", daemon=True)
                thread.start()
            self.folder.flush()
            self._start_first()
        except BaseException as e:
            self.reactor.call_soon(self.reactor.stop)
            replica_processes.terminate_all(self.run.find_processes, grace=0)
            for replica, process in self._running.items():
                self._kill_unidentified(replica)
                process.wait()
            self._gpus.close()
            if isinstance(e, Exception):
                self.guard.dismiss()
            else:
                # Popen may have been interrupted just after it started a process. The guard finds
                # that process too, because the guard looks for processes a little later.
                self.guard.close_pipe()
            self.guard.wait()
            _supervisions.discard(self)
            raise

    def _start_first(self) -> None:
        while (replica := self._next_waiting()) is not None:
            try:
                self._start(replica)
            except OSError as e:
                reason = self._describe_start_error(replica, e)
                self.folder.record_exit(replica, AppState.FAILED, None, reason)
                if e.errno not in PROGRAM_ERRORS:
                    raise BackendError(_describe(replica)) from e
            self.folder.flush()
        self.folder.flush()  # why no other replica may start now
        if not self._running and self._request.elements is None and not self.run.waiting:
            if self.run.replicas:
                raise RequestError(_describe(self.run.replicas[0]))
            raise RequestError("the request has no replicas; set Role.num_replicas to 1 or more")

    def _start(self, replica: ReplicaRun) -> None:
        """Start a replica; an overridden method of a scheduler may raise any error."""
        begun = time.time()  # before the process, which may end before this thread goes on
        process = self._running[replica] = self._spawn(replica, self.begin_attempt(replica))
        self._open_logs(replica)
        self.folder.record(["start", *replica.index, *identify_child(process.pid), begun])
        if gpus := self._gpus.uuids(replica):
            # This event is for people; no reader needs it.
            self.folder.record(["gpus", *replica.index, gpus, begun])

    def _spawn(self, replica: ReplicaRun, attempt: int) -> Any:
        """Start the process of a replica; ``attempt`` is the number of restarts."""
        param = self._param(replica)
        token = process_table.with_token(self._environ, self.run.token(replica))
        env = {
            **with_values(param.env, self._secrets),
            **self._gpus.environment(replica),
            ENV_REPLICA_ID: str(replica.id if self._request.elements is None else 0),
            ENV_RESTART_COUNT: str(attempt),
            process_table.ENV_REPLICA: token,
        }
        if self._request.attempts:
            env[ENV_TORCHX_ATTEMPT] = str(len(self.run.ended_attempts))
            env[ENV_TORCHX_STOP_GRACE] = f"SIGTERM={replica_processes.GRACE_SECONDS:g}"
            if self.run.ended_attempts:
                env[ENV_TORCHX_RESTART_REASON] = self.run.ended_attempts[-1].reason
        folder = self._request.role_log_dirs[replica.role][replica.id]
        if not attempt and replica not in self._prepared:
            try:
                self.folder.make_folder(folder)
                if (combined := self.folder.open_log(param.combined)) is not None:
                    combined.close()  # readers expect that the file exists
            except OSError as e:
                raise folder_error(folder, e) from e
            self._prepared.add(replica)  # an element may be started later
        supervised = SupervisedParam(
            param.args,
            env,
            param.stdout,
            param.stderr,
            param.combined,
            param.cwd,
            self._environ,
            self.folder.open_log,
            attempt > 0,
        )
        started = self._popen(replica.role, replica.id, supervised)
        started.close_files()  # the process has its own descriptors
        self._local_app.add_replica(replica.role, started)
        return started.proc

    def _next_waiting(self) -> ReplicaRun | None:
        """Return the next replica to start, or None if no replica may start now."""
        most = self._request.max_parallel
        ending = set().union(*(operation.replicas for operation in self._operations))
        if not self._waiting or (most is not None and len(self._running.keys() | ending) >= most):
            return None
        # The replicas of an app start together, the elements of an array one by one.
        together = self._waiting if self._request.elements is None else [self._waiting[0]]
        if self._request.gpus and not self._gpus.claim(together):
            self._wait("waits for GPUs that other jobs use")
            return None
        return self._waiting.popleft()

    def _wait(self, reason: str) -> None:
        """Record why the next replica cannot start now, and try again later."""
        if self.run.waiting != reason and not self._running:
            self.folder.record(["wait", reason, time.time()])
        if not self._starts_later:
            self._starts_later = True
            self.reactor.call_later(_START_SECONDS, self._start_again)

    def _start_again(self) -> None:
        self._starts_later = False
        if self._is_marked():  # another process cannot end what has not started
            self.cancel()
        if not self.ended.is_set():
            self._check_end()

    def _open_logs(self, replica: ReplicaRun) -> ReplicaLogs | None:
        logs = self._logs.get(replica) or ReplicaLogs.of(self.folder, self._param(replica))
        if logs is not None:
            self._logs[replica] = logs
        return logs

    def begin_attempt(self, replica: ReplicaRun) -> int:
        """Prepare the files of a replica for its next attempt, and return the attempt's number.

        Raises:
            OSError: The files cannot be used.
        """
        attempt = replica.restarts + 1
        if attempt:
            is_continued = replica not in self._logs
            if (logs := self._open_logs(replica)) is not None:
                if is_continued:
                    logs.recover()
                logs.begin_attempt()
            # The next attempt may succeed, so its error file must not be that of this attempt.
            if error_file := self._param(replica).env.get(ENV_ERROR_FILE):
                stem, extension = os.path.splitext(error_file)
                with contextlib.suppress(OSError):
                    self.folder.rename(error_file, f"{stem}.attempt{attempt - 1}{extension}")
        return attempt

    def _describe_start_error(self, replica: ReplicaRun, error: Exception) -> str:
        """Return why a process could not be started."""
        if isinstance(error, TorchXError):
            return str(error)
        param = self._param(replica)
        program = param.args[0] if param.args else ""
        reason = (
            isinstance(error, OSError) and error.strerror
        ) or f"{type(error).__name__}: {error}"
        if param.cwd is not None and not os.path.isdir(param.cwd):
            return f"cannot run '{program}' in {param.cwd}: the folder does not exist"
        if isinstance(error, FileNotFoundError) and program and os.sep not in program:
            path = process_path(param.env.get("PATH"), param.cwd, os.environ.get("PATH"))
            reason += (
                f" in the folders of PATH ({path}); activate the environment that has the program,"
                " or give its path"
            )
        return f"cannot run '{program}': {reason}"

    # -- The methods below begin, observe and cancel the app.

    def begin(self) -> None:
        """Begin to supervise the started processes; the app's end stops the reactor."""
        for replica in self._running:
            self._observe(replica)
        not_started = [r for r in self.run.replicas if r.state == AppState.FAILED]
        if self._is_marked():
            self.cancel()
        for replica in not_started:
            self._on_final_failure(replica)
        self.reactor.call_soon(self._check_end)
        self.reactor.call_later(_MERGE_SECONDS, self._merge_running)

    def abort(self) -> None:
        """Kill all processes, and mark the app: a later :meth:`begin` ends it as CANCELLED."""
        with contextlib.suppress(OSError):
            self.folder.mark_cancelled()
        replica_processes.terminate_all(self.run.find_processes, grace=0)

    def cancel_soon(self) -> None:
        """Request the app's cancellation; any thread and signal handlers may call this."""
        if self.ended.is_set():
            return
        self._cancels_itself |= not self._is_marked()
        # Without the mark, other processes do not see the cancellation.
        with contextlib.suppress(OSError):
            self.folder.mark_cancelled()
        self.reactor.call_soon(self.cancel)

    def wait_for_end(self) -> None:
        """Wait for the end of an app that is being cancelled; any thread may call this.

        Raises:
            BackendError: The app's processes do not end.
        """
        if not self.ended.wait(replica_processes.GRACE_SECONDS + _KILL_SECONDS):
            pids = ", ".join(str(process.pid) for process in list(self._running.values()))
            raise BackendError(
                f"processes of app {self.run.app_id} do not end although they were killed: {pids}"
            )

    def cancel(self) -> None:
        """Cancel the app."""
        if self._is_cancelled or self.ended.is_set():
            return
        self._is_cancelled = True
        # Record the exits before any signal is sent, so that replicas that have ended already keep
        # their states.
        for replica, process in list(self._running.items()):
            self._record_exit(replica, process)
        self._terminate_app("cancelled")

    # -- The methods below handle the end of a process, and restart replicas.

    def _check_process(self, replica: ReplicaRun, process: Any) -> None:
        """Record the end of a process; if the process still runs, call this again later."""
        if replica not in self._running or self._running[replica] is not process:
            return
        if not self._record_exit(replica, process):
            check = partial(self._check_process, replica, process)
            if not (_is_child(process) and self.reactor.on_exit(process.pid, check)):
                self.reactor.call_later(_EXIT_POLL_SECONDS, check)

    def _record_exit(self, replica: ReplicaRun, process: Any) -> bool:
        """Record the end of a process; return False if the process still runs."""
        reaped = process_table.now()
        exit_code = _read_exit_code(process)
        if exit_code is None:
            return False
        del self._running[replica]
        self._merge([replica], final=not self.run.may_retry)
        operation = self._operation_on(replica)
        # If another process cancels the app, its signal may be why the replica has ended.
        is_marked = self._is_marked(self._element(replica))
        if operation is not None:
            state, reason = operation.state, operation.reason
        elif is_marked and not (exit_code == 0 and self._cancels_itself):
            state, reason = AppState.CANCELLED, "cancelled"
        elif exit_code == 0:
            state, reason = AppState.SUCCEEDED, ""
        else:
            state, reason = AppState.FAILED, describe_exit(exit_code)
        self.folder.record_exit(replica, state, exit_code, reason, reaped)
        # Reap the process only now. If this process is killed before, a guard that is the parent of
        # this process inherits the child, and with it the exit code.
        self._try_flush()
        if self._request.elements is not None:
            self._end_element(replica, process)
        process.poll()
        if operation is None:
            self._on_exit(replica)
        self._release_gpus(replica)
        self.reactor.call_soon(self._check_end)
        return True

    def _on_exit(self, replica: ReplicaRun) -> None:
        """Go on after the end of a replica that nothing in this process has ended."""
        if replica.state == AppState.FAILED:
            self._on_failure(replica)
        elif replica.state == AppState.CANCELLED and self._is_marked():
            self.cancel()
        elif {r.state for r in self._deciding} == {AppState.SUCCEEDED}:
            self._terminate_app(f"stopped after the success of {replica.role}", AppState.SUCCEEDED)

    def _release_gpus(self, replica: ReplicaRun) -> None:
        """Release the GPUs of an element of an array, unless it runs or is restarted."""
        is_needed = replica in self._running or self._operation_on(replica)
        if self._request.elements is not None and not is_needed:
            self._gpus.release(replica)

    def _limit_time(self, replica: ReplicaRun, process: Any) -> None:
        """End a process that was just started after the app's time limit."""
        limit, rules = self._request.time_limit, self._request.attempts
        reason = f"time limit of {limit:g} s reached (option time)" if limit is not None else ""
        if rules is not None and rules.max_total_seconds is not None:
            left = max(0.0, rules.max_total_seconds - self.run.seconds_of_attempts())
            if limit is None or left < limit:
                limit, reason = left, "time limit of all attempts reached (option max_total_time)"
        if limit is not None:
            self.reactor.call_later(limit, partial(self._end_late, replica, process, reason))

    def _end_late(self, replica: ReplicaRun, process: Any, reason: str) -> None:
        if self._running.get(replica) is not process or self._operation_on(replica):
            return
        then = partial(self._on_failure, replica, "time-limit")
        self._terminate({replica}, reason, then, AppState.FAILED)

    def _end_element(self, replica: ReplicaRun, process: Any) -> None:
        """End what the first process of an element has left, and forget its logs."""
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        if not self.run.may_retry and not self._problems:
            self._logs.pop(replica, None)

    def _element(self, replica: ReplicaRun) -> int | None:
        """Return the index of an element of an array; None for a replica of another app."""
        return replica.id if self._request.elements is not None else None

    def _on_failure(self, replica: ReplicaRun, reason: str = "") -> None:
        """Restart a replica that has failed, its role or the app, or end the app.

        Args:
            replica: The replica.
            reason: Why it has ended, if its exit code does not say so; see :class:`AttemptStatus`.
        """
        policy = self._policies[replica.role]
        if self._request.attempts is not None:
            self._end_attempt(replica, reason, self._request.attempts, policy["max_retries"])
            return
        what = RetryPolicy(policy["retry_policy"])
        counted: object
        if what == RetryPolicy.REPLICA:
            counted, replicas = replica, {replica}
        elif what == RetryPolicy.ROLE:
            counted, replicas = replica.role, {*self.run.roles[replica.role]}
        else:
            counted, replicas = None, {*self.run.replicas}
        retries = self._retries.get(counted, 0)
        if retries >= policy["max_retries"] or replicas & self._failed:
            self._on_final_failure(replica)
            return
        self._retries[counted] = retries + 1
        self._end_for_restart(replica, replicas, what)

    def _end_attempt(
        self, replica: ReplicaRun, reason: str, rules: AttemptRules, max_retries: int
    ) -> None:
        """Start the next attempt after the end of a replica, unless a budget is used up."""
        run, folder = self.run, self.run.resume_dir
        if not reason and replica.exit_code in _PREEMPTED:
            reason = "preempted"
        elif not reason:
            is_asked = replica.exit_code in rules.exit_codes
            is_asked = is_asked or is_requested(folder, len(run.ended_attempts))
            reason = "requested" if is_asked else "failed"
        self.folder.record(["attempt", reason, committed_step(folder), time.time()])
        refused = run.refusal(rules, max_retries)
        if refused is None:
            self._end_for_restart(replica, {*run.replicas}, RetryPolicy.APPLICATION)
            return
        if refused:
            self._problems[refused] = None
        self._on_final_failure(replica)

    def _end_for_restart(
        self, replica: ReplicaRun, replicas: set[ReplicaRun], what: RetryPolicy
    ) -> None:
        reason = f"ended for a restart after {_describe(replica)}"

        def then() -> None:
            self.folder.record(["retry", what.value, time.time()])
            self._waiting.extendleft(sorted(replicas, key=lambda r: r.index, reverse=True))

        self._terminate(replicas, reason, then)

    def _on_final_failure(self, replica: ReplicaRun) -> None:
        self._failed.add(replica)
        self._release_gpus(replica)
        is_together = self.run.data["fail_together"] or self._request.attempts
        if is_together and not self._is_cancelled:
            self._terminate_app(f"ended because of {_describe(replica)}")

    def _start_waiting(self) -> None:
        """Start the replicas that wait for their start or restart, as ``max_parallel`` permits."""
        while not self._is_cancelled and (replica := self._next_waiting()) is not None:
            element = self._element(replica)
            if self._is_marked(element):
                self.folder.record_exit(replica, AppState.CANCELLED, None, "cancelled")
                self._release_gpus(replica)
                continue
            try:
                self._start(replica)
            except Exception as e:
                reason = self._describe_start_error(replica, e)
                if replica.restarts < 0 and element is not None and is_temporary(e):
                    self._waiting.appendleft(replica)
                    self._wait(reason)
                    return
                self.folder.record_exit(replica, AppState.FAILED, None, reason)
                self._on_final_failure(replica)
                continue
            self._observe(replica)
            # Another process may have cancelled the app or the element meanwhile.
            if self._is_marked():
                self.cancel()
            elif self._is_marked(element):
                self._terminate({replica}, "cancelled", partial(self._release_gpus, replica))

    def _observe(self, replica: ReplicaRun) -> None:
        """Watch the end and the time limit of a process that was just started."""
        process = self._running[replica]
        self.reactor.call_soon(partial(self._check_process, replica, process))
        self._limit_time(replica, process)

    # -- The methods below terminate replicas.

    def _operation_on(self, replica: ReplicaRun) -> _Operation | None:
        return next((o for o in self._operations if replica in o.replicas), None)

    def _terminate_app(self, reason: str, state: AppState = AppState.CANCELLED) -> None:
        self._waiting.clear()
        self._terminate({*self.run.replicas}, reason, lambda: None, state)

    def _terminate(
        self,
        replicas: set[ReplicaRun],
        reason: str,
        then: Callable[[], None],
        state: AppState = AppState.CANCELLED,
    ) -> None:
        """Terminate replicas and all their descendants, and call ``then`` afterwards."""
        for other in list(self._operations):
            if other.replicas & replicas:
                # The new operation replaces the older one, and includes the older one's replicas.
                self._operations.remove(other)
                replicas |= other.replicas
        operation = _Operation(replicas, reason, then, state)
        self._operations.append(operation)
        for replica in replicas:
            self._kill_unidentified(replica)
        if len(replicas) == len(self.run.replicas):
            find_all = partial(self.run.find_processes, adopts=self._adopts)
        else:
            find_all = partial(self.run.find_processes, replicas)

        def find() -> set[ProcessId]:
            # The thread of a replaced operation must not end what the new operation restarts.
            return find_all() if operation in self._operations else set()

        def terminate_replicas() -> None:
            try:
                replica_processes.terminate_all(find)
            finally:
                self.reactor.call_soon(partial(self._end_operation, operation))

        try:
            threading.Thread(target=terminate_replicas, name="torchx-end", daemon=True).start()
        except RuntimeError:  # this user has too many processes; the other replicas wait
            terminate_replicas()

    def _kill_unidentified(self, replica: ReplicaRun) -> None:
        """Kill a replica that a subclass started, if it is not a known process of this machine."""
        process = self._running.get(replica)
        known = replica.process
        if process is not None and (known is None or not known.start):
            process.kill()

    def _end_operation(self, operation: _Operation) -> None:
        """End an operation whose processes have ended, unless another one has replaced it."""
        if operation not in self._operations:
            return
        if not operation.replicas.isdisjoint(self._running):
            # The exits of the replicas' first processes are recorded separately.
            again = partial(self._end_operation, operation)
            self.reactor.call_later(_EXIT_POLL_SECONDS, again)
            return
        self._operations.remove(operation)
        operation.then()
        self._check_end()

    # -- The methods below merge logs.

    def _merge_running(self) -> None:
        """Merge what the running replicas have written, now and again after a pause."""
        if self.ended.is_set():
            return
        self._merge(self._running)
        pause = max(_MERGE_SECONDS, _MERGE_SECONDS_PER_LOG * len(self._running))
        self.reactor.call_later(pause, self._merge_running)

    def _merge(self, replicas: Iterable[ReplicaRun], final: bool = False) -> None:
        for replica in replicas:
            logs = self._logs.get(replica)
            if logs is None:
                continue
            try:
                logs.merge(final)
            except OSError as e:
                if final:  # else for example no descriptor is free, and the next look tries again
                    problem = f"combined.log of {replica.name} is incomplete: {e.strerror or e}"
                    self._problems[problem] = None

    # -- The methods below end the app.

    def _check_end(self) -> None:
        """End the app and its left processes if no replica runs; otherwise write the events."""
        self._start_waiting()
        # Write the exit codes now: this process may be killed while the left processes end.
        self._try_flush()
        if self._running or self._operations or self._waiting or self.ended.is_set():
            return
        self._terminate({*self.run.replicas}, "", self._finish)

    def _try_flush(self) -> None:
        """Write the recorded events, or keep them for the next flush if the disk is full."""
        with contextlib.suppress(OSError):
            self.folder.flush()

    def _finish(self) -> None:
        try:
            self._write_end()
        finally:
            if not is_terminal(self.run.state):
                self.folder.record(
                    ["end", AppState.FAILED.value, "its supervision has failed", time.time()]
                )
            self.guard.dismiss()
            self._local_app.set_state(self.run.state)
            self._gpus.close()
            self.ended.set()
            # Set `ended` before this, so that no caller of wait() waits for the disk.
            with contextlib.suppress(OSError):
                self.folder.sync()
            self.folder.close()
            self.guard.wait()
            _supervisions.discard(self)
            self.reactor.stop()

    def _write_end(self) -> None:
        self._merge(self._logs, final=True)
        # An app has succeeded if all of its replicas ended with 0 before the cancellation.
        replicas = self.run.replicas
        states = {replica.state for replica in replicas}
        failed = [r for r in replicas if r.state == AppState.FAILED]
        if (self._is_cancelled or self._is_marked()) and states != {AppState.SUCCEEDED}:
            state, msg = AppState.CANCELLED, "cancelled"
        elif failed:
            more = f" (and {len(failed) - 1} more replicas)" if failed[1:] else ""
            state, msg = AppState.FAILED, _describe(failed[0]) + more
        elif AppState.CANCELLED in states:
            state, msg = AppState.CANCELLED, ""
        else:
            state, msg = AppState.SUCCEEDED, ""
        msg = "; ".join([*filter(None, [msg]), *self._problems])
        if self._request.attempts and len(self.run.ended_attempts) == self.run.num_restarts:
            step = committed_step(self.run.resume_dir)
            self.folder.record(["attempt", state.name.lower(), step, time.time()])
        try:
            self.folder.write_end(state, msg)
        except OSError as e:
            logging.getLogger(__name__).warning(
                "other processes cannot see that app %s is %s: cannot write to %s: %s",
                self.run.app_id,
                state.name,
                self.folder.path,
                e.strerror or e,
            )

    # -- The methods below return values that several other methods need.

    def own_pids(self) -> set[int]:
        """Return the pids of the processes that the supervision reaps."""
        return {process.pid for process in self._running.values()}

    def _is_marked(self, k: int | None = None) -> bool:
        """Return True if the journal has a cancellation of the app or of an element of an array."""
        self.folder.read_cancellations()
        return self.run.is_cancelled(k)

    def _param(self, replica: ReplicaRun) -> ReplicaParam:
        return self._request.role_params[replica.role][replica.id]


@atexit.register
def _end_apps() -> None:
    end_apps([supervision._local_app for supervision in _supervisions])


def _forget_inherited_apps() -> None:
    # While a forked process has the pipes and the locked journals open, the guards do not notice
    # that the supervisor has died, and its apps seem to be supervised.
    for supervision in list(_supervisions):
        supervision.guard.close_pipe()
        supervision.folder.close()
    _supervisions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_inherited_apps)


def _is_child(process: Any) -> bool:
    """Return True if a process is a child of this process that was not reaped.

    Args:
        process: What the scheduler has started. A subclass of it may start something else than a
            process of this machine.
    """
    return isinstance(process, subprocess.Popen) and process.returncode is None


def _read_exit_code(process: Any) -> int | None:
    """Return the exit code of a process, negative for a signal; None while the process runs.

    A child of this process is not reaped, so that another process can read the exit code if this
    process is killed.
    """
    code = process_table.exit_code_of_child(process.pid) if _is_child(process) else None
    return process.poll() if code is None else code


def _describe(replica: ReplicaRun) -> str:
    return f"{replica.name}: {replica.reason}"
