"""Supervises one app, from the start of its first process to the end of the app.

For an attached app, a supervision runs in the launcher, usually in a separate thread; for a
detached app, it runs in a separate process. The reactor's thread calls all methods, unless a
method's docstring says otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sched
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torchx_kit.jobs.attempts import AttemptRules, committed_step, is_requested, refusal
from torchx_kit.secrets import resolve_secrets, with_values, without_secrets
from torchx_kit.signals import describe_exit
from torchx_sched_local.build_request import process_path
from torchx_sched_local.cuda import GpuClaims
from torchx_sched_local.errors import PROGRAM_ERRORS, folder_error, is_temporary
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, ReplicaParam
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import Event, ReplicaRun
from torchx_sched_local.store.load_app import may_retry, new_run
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes import process_table, terminate
from torchx_sched_local.supervise.processes.replica_processes import (
    ProcessId,
    Spared,
    has_left_processes,
    identify,
    identify_child,
)
from torchx_sched_local.supervise.processes.terminate import Termination
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.replicas import _LocalAppDef, _LocalReplica
from torchx_sched_local.supervise.start_replicas import (
    ENV_REPLICA_ID,
    ENV_RESTART_COUNT,
    SupervisedParam,
    attempt_variables,
)
from torchx_specs.errors import BackendError, RequestError, TorchXError
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

#: Identifies a replica: the index of its role, and its index in the role.
ReplicaIndex = tuple[int, int]

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


class _Operation:
    """The termination of some replicas, and the function to call afterwards.

    Args:
        indices: The replicas.
        reason: Why they are terminated.
        termination: Terminates their processes.
        then: Called once all processes of the replicas have ended.
        state: The state of the replicas afterwards.
    """

    def __init__(
        self,
        indices: set[ReplicaIndex],
        reason: str,
        termination: Termination,
        then: Callable[[], None],
        state: AppState,
    ) -> None:
        self.indices = indices
        self.state = state
        self.reason = reason
        self.termination = termination
        self.then = then
        self.timer: sched.Event | None = None
        self.watched: set[ProcessId] = set()


class Supervision:
    """Supervises an app.

    Args:
        reactor: The event loop.
        folder: The app's folder.
        data: The app, as :meth:`AppFolder.read_app` returns it.
        request: The app's request.
        popen: Starts a replica.
        local_app: Receives the started replicas and the final state.
        parent: The guard, if it is the parent of this process, all of whose descendants then belong
            to the app; None if :meth:`start` starts a guard.

    Attributes:
        run: The app's state.
        guard: The guard; None before :meth:`start`.
        ended: Set once the app has ended and everything was recorded.

    Raises:
        RequestError: A secret is missing, or is not protected from other users.
    """

    def __init__(
        self,
        reactor: Reactor,
        folder: AppFolder,
        data: dict[str, Any],
        request: PopenRequest,
        popen: Popen,
        local_app: _LocalAppDef,
        parent: Guard | None = None,
    ) -> None:
        self.run = new_run(data)
        if request.attempts:  # it may run again after the machine restarted
            self.run.apply_all(folder.read_events(0)[0])
        self.folder = folder
        self.request = request
        self.ended = threading.Event()
        self.guard = parent
        self._adopts = parent is not None
        self._reactor = reactor
        self._policies = data["roles"]
        self._params = list(request.role_params.values())
        self._may_retry = may_retry(data)
        self._popen = popen
        self._local_app = local_app
        # The secrets are read once, for all replicas and restarts. The values are only in the
        # memory of this process and in the environments of the replicas.
        envs = {id(param.env): param.env for params in self._params for param in params}
        self._secrets = resolve_secrets(envs.values())
        # Copy the environment once: a copy takes longer than starting a process.
        self._environ = without_secrets(os.environ)
        self._gpus = GpuClaims(request)
        self._start_timer: sched.Event | None = None
        self._fail_together = data["fail_together"]
        self._running: dict[ReplicaIndex, Any] = {}
        self._operations: list[_Operation] = []
        self._retries: dict[object, int] = {}
        self._waiting = deque(self._indices())
        # The replicas of the roles whose success ends the app.
        self._deciding = [i for i in self._waiting if self._policies[i[0]]["ends_app"]]
        self._logs: dict[ReplicaIndex, ReplicaLogs] = {}
        self._problems: dict[str, None] = {}
        self._unwritten: list[Event] = []
        self._failed_indices: set[ReplicaIndex] = set()
        self._is_cancelled = False
        self._cancels_itself = False
        self._succeeded: set[ReplicaIndex] = set()
        self._is_cleaned = False

    # -- The methods below record events.

    def record(self, *events: Event) -> None:
        """Apply events to the state; :meth:`flush` writes them to the journal.

        After :meth:`begin`, only the reactor's thread may call this.
        """
        self.run.apply_all(events)
        self._unwritten += events

    def flush(self) -> None:
        """Write the recorded events to the journal.

        Raises:
            OSError: The events cannot be written; they are kept for the next call.
        """
        events, self._unwritten = self._unwritten, []
        self.folder.append(events)

    # -- The methods below start replicas.

    def start(self) -> None:
        """Start the guard, and the replicas that may start now.

        A replica whose program cannot be run is recorded as failed if other replicas run, or if the
        app is an array. If this method raises an error, all started processes have been killed. If
        it is interrupted, the guard ends the app.

        Raises:
            RequestError: None of the programs can be run, or the app's folder cannot be written.
            BackendError: The machine cannot run so many processes, or has another problem.
            OSError: The guard cannot be started, or the first events cannot be written.
        """
        now = time.time()
        self.record(["supervisor", *identify(os.getpid()), self.run.boot, self.run.node, now])
        if self.request.attempts and not self.run.ended_attempts:
            self.record(["resume", committed_step(self.request.resume_dir), now])
        # The guard starts before the first replica, so that no replica is ever without a guard.
        if self.guard is None:
            self.guard = Guard(self.folder, self.run.app_id, self.run.begun)
        try:
            self.flush()
            self._start_first()
        except Exception:
            self.guard.dismiss()
            self.guard.wait()
            raise
        except BaseException:
            # Popen may have been interrupted just after it started a process. The guard finds that
            # process too, because the guard looks for processes a little later.
            self.guard.end_app()
            raise

    def _start_first(self) -> None:
        first_reason = ""
        try:
            while (index := self._next_waiting()) is not None:
                try:
                    self._start(index)
                except OSError as e:
                    replica = self.run.replica(*index)
                    reason = f"{replica.role}/{replica.id}: {self._describe_start_error(index, e)}"
                    if e.errno not in PROGRAM_ERRORS:
                        raise BackendError(reason) from e
                    first_reason = first_reason or reason
                    self._record_start_error(index, e)
                self._flush_start()
            self._flush_start()  # why no other replica may start now
            if not self._running and self.request.elements is None and not self.run.waiting:
                raise RequestError(
                    first_reason
                    or "the request has no replicas; set Role.num_replicas to 1 or more"
                )
        except BaseException:
            terminate.terminate_all(self.run.find_processes, grace=0)
            for index, process in self._running.items():
                self._kill_unidentified(index)
                process.wait()
            self._gpus.close()
            raise

    def _flush_start(self) -> None:
        """Write the recorded events to the journal, after each start and before the next one."""
        try:
            self.flush()
        except OSError as e:
            raise folder_error(self.folder.path, e) from e

    def _start(self, index: ReplicaIndex) -> None:
        """Start a replica; an overridden method of a scheduler may raise any error."""
        begun = time.time()  # before the process, which may end before this thread goes on
        process = self._running[index] = self._spawn(index, self.begin_attempt(index))
        self._open_logs(index)
        self.record(["start", *index, *identify_child(process.pid), begun])

    def _spawn(self, index: ReplicaIndex, attempt: int) -> Any:
        """Start the process of a replica; ``attempt`` is the number of restarts."""
        param, (role, k) = self._param(index), self._key(index)
        marks = {
            **self._gpus.environment((role, k)),
            ENV_REPLICA_ID: str(k if self.request.elements is None else 0),
            ENV_RESTART_COUNT: str(attempt),
            process_table.ENV_REPLICA: process_table.with_token(
                self._environ, self.run.token(*index)
            ),
            **(attempt_variables(self.run) if self.request.attempts else {}),
        }
        supervised = SupervisedParam(
            param.args,
            {**with_values(param.env, self._secrets), **marks},
            param.stdout,
            param.stderr,
            param.combined,
            param.cwd,
            attempt,
            self._environ,
            self.folder.files,
        )
        folder = self.request.role_log_dirs[role][k]
        if not attempt:
            try:
                self.folder.files.make_folder(folder)
            except OSError as e:
                raise folder_error(folder, e) from e
        try:
            replica = self._popen(role, k, supervised)
        except Exception as e:
            if not attempt and is_temporary(e):
                self.folder.files.remove_folder(folder)
            raise
        replica.close_files()  # the process has its own descriptors
        self._local_app.add_replica(role, replica)
        return replica.proc

    def _next_waiting(self) -> ReplicaIndex | None:
        """Return the next replica to start, or None if no replica may start now."""
        most = self.request.max_parallel
        ending = set().union(*(operation.indices for operation in self._operations))
        if not self._waiting or (most is not None and len(self._running.keys() | ending) >= most):
            return None
        if self.request.gpus:
            # The replicas of an app start together, the elements of an array one by one.
            together = self._waiting if self.request.elements is None else [self._waiting[0]]
            if not self._gpus.claim([self._key(index) for index in together]):
                self._wait("waits for GPUs that other jobs use")
                return None
        return self._waiting.popleft()

    def _wait(self, reason: str) -> None:
        """Record why the next replica cannot start now, and try again later."""
        if self.run.waiting != reason and not self._running:
            self.record(["wait", reason, time.time()])
        if self._start_timer is None:
            self._start_timer = self._reactor.call_later(_START_SECONDS, self._start_again)

    def _start_again(self) -> None:
        self._start_timer = None
        if not self.ended.is_set():
            self._check_end()

    def _open_logs(self, index: ReplicaIndex) -> ReplicaLogs | None:
        param = self._param(index)
        if index not in self._logs and param.stdout and param.stderr and param.combined:
            self._logs[index] = ReplicaLogs(
                self.folder.files, param.stdout, param.stderr, param.combined
            )
        return self._logs.get(index)

    def begin_attempt(self, index: ReplicaIndex) -> int:
        """Prepare the files of a replica for its next attempt, and return the attempt's number.

        Raises:
            OSError: The files cannot be used.
        """
        attempt = self.run.replica(*index).restarts + 1
        if attempt:
            is_continued = index not in self._logs
            if (logs := self._open_logs(index)) is not None:
                if is_continued:
                    logs.recover()
                logs.begin_attempt()
            self._rename_error_file(self._param(index).env.get(ENV_ERROR_FILE), attempt)
        return attempt

    def _record_start_error(self, index: ReplicaIndex, error: Exception) -> None:
        """Record that a replica could not be started."""
        reason = self._describe_start_error(index, error)
        self.record(["exit", *index, AppState.FAILED.value, None, reason, None, time.time()])

    def _describe_start_error(self, index: ReplicaIndex, error: Exception) -> str:
        """Return why a process could not be started."""
        if isinstance(error, TorchXError):
            return str(error)
        param = self._param(index)
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
        """Begin to supervise the started processes; the app's end releases the reactor."""
        for index in self._running:
            self._observe(index)
        indices = self._indices()
        not_started = [i for i in indices if self.run.replica(*i).state == AppState.FAILED]
        if self._is_marked():
            self.cancel()
        for index in not_started:
            self._on_final_failure(index)
        self._reactor.call_next(self._check_end)
        self._reactor.call_later(_MERGE_SECONDS, self._merge_running)

    def abort(self) -> None:
        """Kill all processes, and mark the app: a later :meth:`begin` ends it as CANCELLED."""
        with contextlib.suppress(OSError):
            self.folder.mark_cancelled()
        terminate.terminate_all(self.run.find_processes, grace=0)

    def cancel_soon(self) -> None:
        """Request the app's cancellation; any thread and signal handlers may call this."""
        if self.ended.is_set():
            return
        self._cancels_itself |= not self._is_marked()
        try:
            self.folder.mark_cancelled()
        except OSError:
            pass  # continue without the mark, by which other processes see the cancellation
        self._reactor.call_soon(self.cancel)

    def wait_for_end(self) -> None:
        """Wait for the end of an app that is being cancelled; any thread may call this.

        Raises:
            BackendError: The app's processes do not end.
        """
        if not self.ended.wait(terminate.GRACE_SECONDS + _KILL_SECONDS):
            pids = ", ".join(str(process.pid) for process in self._running.values())
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
        for index, process in list(self._running.items()):
            self._record_exit(index, process)
        self._terminate_app("cancelled")

    # -- The methods below handle the end of a process, and restart replicas.

    def _check_process(self, index: ReplicaIndex, process: Any) -> None:
        """Record the end of a process; if the process still runs, call this again later."""
        if index not in self._running or self._running[index] is not process:
            return
        if not self._record_exit(index, process):
            check = partial(self._check_process, index, process)
            if not (_is_child(process) and self._reactor.on_exit(process.pid, check)):
                self._reactor.call_later(_EXIT_POLL_SECONDS, check)

    def _record_exit(self, index: ReplicaIndex, process: Any) -> bool:
        """Record the end of a process; return False if the process still runs."""
        reaped = process_table.now()
        exit_code = _read_exit_code(process)
        if exit_code is None:
            return False
        del self._running[index]
        self._merge([index], final=not self._may_retry)
        operation = self._operation_on(index)
        if operation is not None:
            state, reason = operation.state, operation.reason
        elif exit_code == 0:
            state, reason = AppState.SUCCEEDED, ""
            # If another process is cancelling the app, its signal may be why the replica has ended.
            if self._cancels_itself or not self._is_marked(self._element(index)):
                self._succeeded.add(index)
            elif self.request.elements is not None:
                state, reason = AppState.CANCELLED, "cancelled"
        elif self._is_marked(self._element(index)):  # by another process
            state, reason = AppState.CANCELLED, "cancelled"
        else:
            state, reason = AppState.FAILED, describe_exit(exit_code)
        self.record(["exit", *index, state.value, exit_code, reason, reaped, time.time()])
        # Reap the process only now. If this process is killed before, a guard that is the parent of
        # this process inherits the child, and with it the exit code.
        self._try_flush()
        if self.request.elements is not None:
            self._end_element(index, process)
        process.poll()
        if state == AppState.FAILED and operation is None:
            self._on_failure(index)
        elif state == AppState.SUCCEEDED and operation is None and self._has_final_success():
            reason = f"stopped after the success of {self.run.replica(*index).role}"
            self._terminate_app(reason, AppState.SUCCEEDED)
        elif state == AppState.CANCELLED and operation is None and self._is_marked():
            self.cancel()
        self._release_gpus(index)
        self._reactor.call_next(self._check_end)
        return True

    def _has_final_success(self) -> bool:
        """Return True if all replicas of the roles whose success ends the app have succeeded."""
        states = {self.run.replica(*index).state for index in self._deciding}
        return states == {AppState.SUCCEEDED}

    def _release_gpus(self, index: ReplicaIndex) -> None:
        """Release the GPUs of an element of an array, unless it runs or is restarted."""
        if self._element(index) is not None and not (
            index in self._running or self._operation_on(index)
        ):
            self._gpus.release(self._key(index))

    def _limit_time(self, index: ReplicaIndex, process: Any) -> None:
        """End a process that was just started after the app's time limit."""
        limit, rules = self.request.time_limit, self.request.attempts
        reason = f"time limit of {limit:g} s reached (option time)" if limit is not None else ""
        if rules is not None and rules.max_total_seconds is not None:
            left = max(0.0, rules.max_total_seconds - self.run.seconds_of_attempts())
            if limit is None or left < limit:
                limit, reason = left, "time limit of all attempts reached (option max_total_time)"
        if limit is not None:
            self._reactor.call_later(limit, lambda: self._end_late(index, process, reason))

    def _end_late(self, index: ReplicaIndex, process: Any, reason: str) -> None:
        if self._running.get(index) is not process or self._operation_on(index):
            return

        def then() -> None:
            self._on_failure(index, "time-limit")
            self._release_gpus(index)

        self._terminate({index}, reason, then, AppState.FAILED)

    def _end_element(self, index: ReplicaIndex, process: Any) -> None:
        """End what the first process of an element has left, and forget its logs."""
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        if not self._may_retry and not self._problems:
            self._logs.pop(index, None)

    def _element(self, index: ReplicaIndex) -> int | None:
        """Return the index of an element of an array; None for a replica of another app."""
        return index[1] if self.request.elements is not None else None

    def _on_failure(self, index: ReplicaIndex, reason: str = "") -> None:
        """Restart a replica that has failed, its role or the app, or end the app.

        Args:
            index: The replica.
            reason: Why it has ended, if its exit code does not say so; see :class:`AttemptStatus`.
        """
        policy = self._policies[index[0]]
        if self.request.attempts is not None:
            self._end_attempt(index, reason, self.request.attempts, policy["max_retries"])
            return
        what = RetryPolicy(policy["retry_policy"])
        counted: object
        if what == RetryPolicy.REPLICA:
            counted, indices = index, {index}
        elif what == RetryPolicy.ROLE:
            counted, indices = index[0], {p for p in self._indices() if p[0] == index[0]}
        else:
            counted, indices = None, set(self._indices())
        retries = self._retries.get(counted, 0)
        if retries >= policy["max_retries"] or indices & self._failed_indices:
            self._on_final_failure(index)
            return
        self._retries[counted] = retries + 1
        self._end_for_restart(index, indices, what)

    def _end_attempt(
        self, index: ReplicaIndex, reason: str, rules: AttemptRules, max_retries: int
    ) -> None:
        """Start the next attempt after the end of a replica, unless a budget is used up."""
        run, folder = self.run, self.request.resume_dir
        code = run.replica(*index).exit_code
        if not reason:
            is_asked = code in rules.exit_codes or is_requested(folder, len(run.ended_attempts))
            reason = "requested" if is_asked else "failed"
            reason = "preempted" if code in _PREEMPTED else reason
        self.record(["attempt", reason, committed_step(folder), time.time()])
        reasons = [attempt.reason for attempt in run.ended_attempts]
        refused = refusal(
            rules,
            reasons,
            run.steps(),
            run.seconds_of_attempts(),
            max_retries=max_retries,
            has_folder=folder is not None,
        )
        if refused is None:
            self._end_for_restart(index, set(self._indices()), RetryPolicy.APPLICATION)
            return
        if refused:
            self._problems[refused] = None
        self._on_final_failure(index)

    def _end_for_restart(
        self, index: ReplicaIndex, indices: set[ReplicaIndex], what: RetryPolicy
    ) -> None:
        self.record(["retry", what.value, time.time()])
        reason = f"ended for a restart after {_describe(self.run.replica(*index))}"

        def then() -> None:
            self._succeeded -= indices
            self._waiting.extendleft(sorted(indices, reverse=True))

        self._terminate(indices, reason, then)

    def _on_final_failure(self, index: ReplicaIndex) -> None:
        self._failed_indices.add(index)
        if (self._fail_together or self.request.attempts) and not self._is_cancelled:
            self._terminate_app(f"ended because of {_describe(self.run.replica(*index))}")

    def _start_waiting(self) -> None:
        """Start the replicas that wait for their start or restart, as ``max_parallel`` permits."""
        while not self._is_cancelled and (index := self._next_waiting()) is not None:
            if self._is_marked(self._element(index)):
                end = [AppState.CANCELLED.value, None, "cancelled", None, time.time()]
                self.record(["exit", *index, *end])
                self._release_gpus(index)
                continue
            try:
                self._start(index)
            except Exception as e:
                is_new = self.run.replica(*index).restarts < 0
                if is_new and self._element(index) is not None and is_temporary(e):
                    self._waiting.appendleft(index)
                    self._wait(self._describe_start_error(index, e))
                    return
                self._record_start_error(index, e)
                self._on_final_failure(index)
                continue
            self._observe(index)
            # Another process may have cancelled the app or the element meanwhile.
            if self._is_marked():
                self.cancel()
            elif self._is_marked(self._element(index)):
                self._terminate({index}, "cancelled", partial(self._release_gpus, index))

    def _observe(self, index: ReplicaIndex) -> None:
        """Watch the end and the time limit of a process that was just started."""
        process = self._running[index]
        self._reactor.call_next(partial(self._check_process, index, process))
        self._limit_time(index, process)

    def _rename_error_file(self, error_file: str | None, attempt: int) -> None:
        """Rename the error file of the previous attempt, because the next attempt may succeed.

        Args:
            error_file: Path of the error file; None if the replica has none.
            attempt: The number of the next attempt.
        """
        if error_file:
            stem, extension = os.path.splitext(error_file)
            with contextlib.suppress(OSError):
                self.folder.files.rename(error_file, f"{stem}.attempt{attempt - 1}{extension}")

    # -- The methods below terminate replicas.

    def _operation_on(self, index: ReplicaIndex) -> _Operation | None:
        return next((o for o in self._operations if index in o.indices), None)

    def _terminate_app(self, reason: str, state: AppState = AppState.CANCELLED) -> None:
        self._waiting.clear()
        self._terminate(set(self._indices()), reason, lambda: None, state)

    def _terminate(
        self,
        indices: set[ReplicaIndex],
        reason: str,
        then: Callable[[], None],
        state: AppState = AppState.CANCELLED,
    ) -> None:
        """Terminate replicas and all their descendants, and call ``then`` afterwards."""
        for operation in list(self._operations):
            if operation.indices & indices:
                # The new operation replaces the older one, and includes the older one's replicas.
                self._operations.remove(operation)
                indices |= operation.indices
        tokens = {self.run.token(*index) for index in indices}
        is_whole_app = len(indices) == len(self._indices())

        def find() -> set[ProcessId]:
            if is_whole_app:
                return self.run.find_processes(spared=self._spared())
            return self.run.find_processes(tokens)

        operation = _Operation(indices, reason, Termination(find), then, state)
        self._operations.append(operation)
        for index in indices:
            self._kill_unidentified(index)
        self._step_termination(operation)

    def _kill_unidentified(self, index: ReplicaIndex) -> None:
        """Kill a replica that a subclass started, if it is not a known process of this machine."""
        process = self._running.get(index)
        known = self.run.replica(*index).process
        if process is not None and (known is None or not known.start):
            process.kill()

    def _step_termination(self, operation: _Operation) -> None:
        if operation not in self._operations:
            return  # another one has replaced it
        if operation.timer is not None:
            self._reactor.cancel(operation.timer)
        try:
            seconds = operation.termination.step()
        except OSError:  # too many open files
            operation.timer = self._reactor.call_later(
                _EXIT_POLL_SECONDS, lambda: self._step_termination(operation)
            )
            return
        if seconds is None:
            # The exits of the replicas' first processes are reported separately, so wait for them.
            if not any(index in self._running for index in operation.indices):
                self._operations.remove(operation)
                operation.then()
                self._check_end()
                return
            seconds = _EXIT_POLL_SECONDS
        for process in operation.termination.members - operation.watched:
            operation.watched.add(process)
            if not self._reactor.on_exit(process.pid, lambda: self._step_termination(operation)):
                seconds = min(seconds, _EXIT_POLL_SECONDS)
        operation.timer = self._reactor.call_later(
            seconds, lambda: self._step_termination(operation)
        )

    # -- The methods below merge logs.

    def _merge_running(self) -> None:
        """Merge what the running replicas have written, now and again after a pause."""
        if self.ended.is_set():
            return
        self._merge(self._running)
        pause = max(_MERGE_SECONDS, _MERGE_SECONDS_PER_LOG * len(self._running))
        self._reactor.call_later(pause, self._merge_running)

    def _merge(self, indices: Iterable[ReplicaIndex], final: bool = False) -> None:
        for index in indices:
            logs = self._logs.get(index)
            if logs is None:
                continue
            try:
                if final:
                    logs.finish()
                else:
                    logs.merge()
            except OSError as e:
                if final:  # else for example no descriptor is free, and the next look tries again
                    replica = self.run.replica(*index)
                    self._problems[
                        f"combined.log of {replica.role}/{replica.id} is incomplete:"
                        f" {e.strerror or e}"
                    ] = None

    # -- The methods below end the app.

    def _check_end(self) -> None:
        """End the app and its left processes if no replica runs; otherwise write the events."""
        self._start_waiting()
        # Write the exit codes now: this process may be killed while the left processes end.
        self._try_flush()
        if self._running or self._operations or self._waiting or self.ended.is_set():
            return
        leaders, marks = self.run.leaders(), self.run.marks()
        if self._is_cleaned or not has_left_processes(leaders, marks, self._spared()):
            self._finish()
        else:
            self._is_cleaned = True
            self._terminate_app("")

    def _try_flush(self) -> None:
        """Write the recorded events, or keep them for the next flush if the disk is full."""
        with contextlib.suppress(OSError):
            self.flush()

    def _finish(self) -> None:
        try:
            self._write_end()
        finally:
            if not is_terminal(self.run.state):
                self.record(
                    ["end", AppState.FAILED.value, "its supervision has failed", time.time()]
                )
            if self.guard is not None:
                self.guard.dismiss()
            self._local_app.set_state(self.run.state)
            self._gpus.close()
            self.ended.set()
            # Set `ended` before this, so that no caller of wait() waits for the disk.
            with contextlib.suppress(OSError):
                self.folder.sync()
            self.folder.close()
            if self.guard is not None:
                self.guard.wait()
            self._reactor.release()

    def _write_end(self) -> None:
        self._merge(self._logs, final=True)
        # An app has succeeded if all of its replicas ended with 0 before the cancellation.
        is_cancelled = self._is_cancelled or self._is_marked()
        if is_cancelled and len(self._succeeded) < len(self.run.replicas):
            state, msg = AppState.CANCELLED, "cancelled"
        else:
            failed = [r for r in self.run.replicas if r.state == AppState.FAILED]
            is_partial = any(r.state == AppState.CANCELLED for r in self.run.replicas)
            state = AppState.CANCELLED if is_partial else AppState.SUCCEEDED
            state = AppState.FAILED if failed else state
            msg = _describe_all(failed)
        if self._problems:
            msg = "; ".join([msg, *self._problems] if msg else self._problems)
        when = time.time()
        self.folder.release_room()
        with contextlib.suppress(OSError):  # the journal has the same information
            self.folder.write_success(self.run, self.request, state, msg, when)
        if self.request.attempts and len(self.run.ended_attempts) == self.run.num_restarts:
            step = committed_step(self.request.resume_dir)
            self.record(["attempt", state.name.lower(), step, when])
        self.record(["end", state.value, msg, when])
        try:
            self.flush()
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
        pids = {process.pid for process in self._running.values()}
        return pids if self.guard is None else pids | {self.guard.pid}

    def _is_marked(self, k: int | None = None) -> bool:
        """Return True if the journal has a cancellation of the app or of an element of an array."""
        for event in self.folder.new_cancellations():
            self.run.apply(event)
        return self.run.is_cancelled(k)

    def _spared(self) -> Spared | None:
        return self.own_pids() - {p.pid for p in self._running.values()} if self._adopts else None

    def _indices(self) -> list[ReplicaIndex]:
        return [(i, k) for i, role in enumerate(self.run.roles.values()) for k in range(len(role))]

    def _key(self, index: ReplicaIndex) -> tuple[str, int]:
        return self._policies[index[0]]["name"], index[1]

    def _param(self, index: ReplicaIndex) -> Any:
        return self._params[index[0]][index[1]]


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
    return f"{replica.role}/{replica.id}: {replica.reason}"


def _describe_all(replicas: list[ReplicaRun]) -> str:
    if not replicas:
        return ""
    first = _describe(replicas[0])
    return first if len(replicas) == 1 else f"{first} (and {len(replicas) - 1} more replicas)"
