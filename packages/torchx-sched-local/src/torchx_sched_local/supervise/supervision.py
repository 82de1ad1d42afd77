"""Supervises one app, from the start of its first process to the end of the app.

For an attached app, a supervision runs in the launcher, usually in a separate thread; for a
detached app, it runs in a separate process. The reactor's thread calls all methods, unless a
method's docstring says otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torchx_kit.jobs.attempts import AttemptRules, committed_step, is_requested, refusal
from torchx_kit.signals import describe_exit
from torchx_sched_local.build_request import process_path
from torchx_sched_local.cuda import GpuClaims
from torchx_sched_local.errors import is_temporary
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, Event, ReplicaRun
from torchx_sched_local.store.retention import delete_old_apps
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes import (
    process_table,
    terminate,
)
from torchx_sched_local.supervise.processes.replica_processes import (
    ProcessId,
    Spared,
    has_left_processes,
    identify_child,
)
from torchx_sched_local.supervise.processes.terminate import Termination
from torchx_sched_local.supervise.reactor import Reactor, Timer
from torchx_specs.errors import BackendError, TorchXError
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

#: Identifies a replica: the index of its role, and its index in the role.
ReplicaIndex = tuple[int, int]

#: Starts a replica: called with its index and the number of restarts. May raise OSError.
Spawn = Callable[[ReplicaIndex, int], Any]

# The exit codes of a preempted replica: on this machine, only SIGTERM announces a preemption. A
# shell turns this signal into an exit code.
_PREEMPTED = (-signal.SIGTERM, 128 + signal.SIGTERM)
# The pause between two looks at the logs of all running replicas, in seconds: after new lines, and
# while there are none. Of many logs, the pause grows with their number, so that the looks take at
# most one percent of a processor.
_MERGE_SECONDS = (0.02, 0.1)
_MERGE_SECONDS_PER_LOG = 0.0005
# How long a killed process may take to end: it does not end while it waits for a disk.
_KILL_SECONDS = 20.0
# How often to try to start a replica that waits for a GPU, or for other resources of the machine.
_START_SECONDS = 0.5
# How often to check whether a process has ended that has no pidfd.
_EXIT_POLL_SECONDS = 0.05


class Policy(NamedTuple):
    """The retry policy of a role.

    Attributes:
        max_retries: The largest number of restarts of the unit ``what``.
        what: The unit that is restarted after a failure: the replica, its role or the app.
        ends_app: Whether the success of the role ends the app (``torchx/ends_app``).
    """

    max_retries: int = 0
    what: RetryPolicy = RetryPolicy.APPLICATION
    ends_app: bool = False


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
        self.timer: Timer | None = None
        self.watched: set[ProcessId] = set()
        self.is_over = False

    def abandon(self) -> None:
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()


class Supervision:
    """Supervises an app.

    Args:
        reactor: The event loop.
        folder: The app's folder.
        run: The app's state.
        request: The app's request.
        policies: The retry policy of each role.
        spawn: Starts a replica.
        gpus: The GPUs of the replicas.
        fail_together: Whether to end all replicas when one has failed and has no retries left.
        adopts: Whether all descendants of this process belong to the app.

    Attributes:
        ended: Set once the app has ended and everything was recorded.
        on_end: Functions that are called with the final state just before ``ended`` is set.
    """

    def __init__(
        self,
        reactor: Reactor,
        folder: AppFolder,
        run: AppRun,
        request: PopenRequest,
        policies: list[Policy],
        spawn: Spawn,
        gpus: GpuClaims,
        *,
        fail_together: bool = False,
        adopts: bool = False,
    ) -> None:
        self.run = run
        self.folder = folder
        self.request = request
        self.ended = threading.Event()
        self.guard: Guard | None = None
        self.on_end: list[Callable[[AppState], None]] = []
        self._reactor = reactor
        self._policies = policies
        self._roles = list(request.role_params)
        self._params = list(request.role_params.values())
        has_retries = any(policy.max_retries for policy in policies)
        self._may_retry = has_retries or request.attempts is not None
        self._spawn = spawn
        self._gpus = gpus
        self._start_timer: Timer | None = None
        self._fail_together = fail_together
        self._adopts = adopts
        self._running: dict[ReplicaIndex, Any] = {}
        self._operations: list[_Operation] = []
        self._retries: dict[object, int] = {}
        self._waiting = deque(self._indices())
        self._logs: dict[ReplicaIndex, ReplicaLogs] = {}
        self._merge_pause = _MERGE_SECONDS[0]
        self._problems: dict[str, None] = {}
        self._unwritten: list[Event] = []
        self._failed_indices: set[ReplicaIndex] = set()
        self._is_cancelled = False
        self._cancels_itself = False
        self._succeeded: set[ReplicaIndex] = set()
        self._is_cleaned = False
        self._is_check_pending = False

    # -- The methods below record events.

    def record(self, *events: Event) -> None:
        """Apply events to the state; :meth:`flush` writes them to the journal.

        After :meth:`begin`, only the reactor's thread may call this.
        """
        for event in events:
            self.run.apply(event)
        self._unwritten += events

    def flush(self) -> None:
        """Write the recorded events to the journal.

        Raises:
            OSError: The events cannot be written; they are kept for the next call.
        """
        events, self._unwritten = self._unwritten, []
        self.folder.append(events)

    def next_waiting(self, busy: int) -> ReplicaIndex | None:
        """Return the next replica to start, or None if no replica may start now.

        Args:
            busy: How many replicas run.
        """
        most = self.request.max_parallel
        if not self._waiting or (most is not None and busy >= most):
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

    def record_start(self, index: ReplicaIndex, process: Any) -> None:
        """Record that a replica was started."""
        self._open_logs(index)
        self.record(["start", *index, *identify_child(process.pid), time.time()])

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

    def record_start_error(self, index: ReplicaIndex, error: Exception) -> None:
        """Record that a replica could not be started."""
        reason = self.describe_start_error(index, error)
        self.record(["exit", *index, AppState.FAILED.value, None, reason, None, time.time()])

    def describe_start_error(self, index: ReplicaIndex, error: Exception) -> str:
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

    def begin(self, running: Mapping[ReplicaIndex, Any]) -> None:
        """Begin to supervise the started processes; the app's end releases the reactor.

        Args:
            running: The started processes by replica.
        """
        self._running.update(running)
        for index, process in running.items():
            self._observe(index, process)
        if self._is_marked():
            self.cancel()
        for index in self._indices():
            replica = self.run.replica(*index)
            if index not in running and replica.state == AppState.FAILED:
                self._on_final_failure(index)
        self._check_end_soon()
        self._reactor.call_later(self._merge_pause, self._merge_running)

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
        self._check_end_soon()
        return True

    def _has_final_success(self) -> bool:
        """Return True if all replicas of the roles whose success ends the app have succeeded."""
        deciding = [index for index in self._indices() if self._policies[index[0]].ends_app]
        states = {self.run.replica(*index).state for index in deciding}
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
            self._end_attempt(index, reason, self.request.attempts, policy.max_retries)
            return
        counted: object
        if policy.what == RetryPolicy.REPLICA:
            counted, indices = index, {index}
        elif policy.what == RetryPolicy.ROLE:
            counted, indices = index[0], {p for p in self._indices() if p[0] == index[0]}
        else:
            counted, indices = None, set(self._indices())
        retries = self._retries.get(counted, 0)
        if retries >= policy.max_retries or indices & self._failed_indices:
            self._on_final_failure(index)
            return
        self._retries[counted] = retries + 1
        self._end_for_restart(index, indices, policy.what)

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
        while not self._is_cancelled:
            ending = set().union(*(operation.indices for operation in self._operations))
            index = self.next_waiting(len(self._running.keys() | ending))
            if index is None:
                return
            if self._is_marked(self._element(index)):
                end = [AppState.CANCELLED.value, None, "cancelled", None, time.time()]
                self.record(["exit", *index, *end])
                self._release_gpus(index)
                continue
            try:
                process = self._spawn(index, self.begin_attempt(index))
            except Exception as e:  # overridden code of a scheduler may raise anything
                is_new = self.run.replica(*index).restarts < 0
                if is_new and self._element(index) is not None and is_temporary(e):
                    self._waiting.appendleft(index)
                    self._wait(self.describe_start_error(index, e))
                    return
                self.record_start_error(index, e)
                self._on_final_failure(index)
                continue
            self.record_start(index, process)
            self._running[index] = process
            self._observe(index, process)
            # Another process may have cancelled the app or the element meanwhile.
            if self._is_marked():
                self.cancel()
            elif self._is_marked(self._element(index)):
                self._terminate({index}, "cancelled", partial(self._release_gpus, index))

    def _observe(self, index: ReplicaIndex, process: Any) -> None:
        """Watch the end and the time limit of a process that was just started."""
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
                operation.abandon()
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
        if operation.is_over:
            return
        if operation.timer is not None:
            operation.timer.cancel()
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
                operation.abandon()
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
        has_merged = self._merge(self._running)
        shortest, longest = _MERGE_SECONDS
        self._merge_pause = shortest if has_merged else min(self._merge_pause * 1.5, longest)
        pause = max(self._merge_pause, _MERGE_SECONDS_PER_LOG * len(self._running))
        self._reactor.call_later(pause, self._merge_running)

    def _merge(self, indices: Iterable[ReplicaIndex], final: bool = False) -> bool:
        has_merged = False
        for index in indices:
            logs = self._logs.get(index)
            if logs is None:
                continue
            try:
                has_merged |= logs.finish() if final else logs.merge()
            except OSError as e:
                if final:  # else for example no descriptor is free, and the next look tries again
                    replica = self.run.replica(*index)
                    self._problems[
                        f"combined.log of {replica.role}/{replica.id} is incomplete:"
                        f" {e.strerror or e}"
                    ] = None
        return has_merged

    # -- The methods below end the app.

    def _check_end_soon(self) -> None:
        """Call :meth:`_check_end` once for all processes that ended at the same time."""
        if not self._is_check_pending:
            self._is_check_pending = True
            self._reactor.call_next(self._check_end)

    def _check_end(self) -> None:
        """End the app and its left processes if no replica runs; otherwise write the events."""
        self._is_check_pending = False
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
            for call in self.on_end:
                call(self.run.state)
            self._gpus.close()
            self.ended.set()
            # Set `ended` before this, so that no caller of wait() waits for the disk.
            with contextlib.suppress(OSError):
                self.folder.sync()
            self.folder.close()
            if self.guard is not None:
                self.guard.wait()
            delete_old_apps()
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
        return self._roles[index[0]], index[1]

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
