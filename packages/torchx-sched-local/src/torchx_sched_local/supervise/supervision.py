"""The supervision of one app: from its first process to its end.

The same for apps that belong to their launcher (it runs in a thread of it) and for detached ones
(it runs in a process of its own). Everything here is called by the reactor's thread, unless it says
otherwise.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torchx_kit.signals import describe_exit
from torchx_sched_local.logs.combined import ReplicaLogs
from torchx_sched_local.logs.replica_log import ReplicaLog, log_path
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.app_run import AppRun, Event, ReplicaRun
from torchx_sched_local.store.retention import remove_old
from torchx_sched_local.supervise import process_table, processes
from torchx_sched_local.supervise import terminate as ending
from torchx_sched_local.supervise.guard import Guard
from torchx_sched_local.supervise.processes import ProcessId
from torchx_sched_local.supervise.reactor import Reactor, Timer
from torchx_sched_local.supervise.terminate import Ending
from torchx_specs.errors import BackendError, TorchXError
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.api import Stream

#: A replica: index of its role, and its index within the role.
Place = tuple[int, int]

#: Starts a process: called with the place and the number of the attempt. Raises OSError.
Spawn = Callable[[Place, int], Any]

# What ends sooner needs no file events: its logs are merged when it has ended.
_WATCH_AFTER_SECONDS = 0.02
_MERGE_PAUSE_SECONDS = 0.005
_POLL_SECONDS = (0.05, 1.0)
_TIMES_SECONDS = 0.1
# How long a killed process may take to end: waiting for a disk, it may not even notice.
_KILL_SECONDS = 20.0
# How often to look whether processes have ended that this system has no descriptors for.
_LOOK_SECONDS = 0.05


class Policy(NamedTuple):
    """What is done when a replica of a role fails.

    Attributes:
        max_retries: how often
        what: what is started again
    """

    max_retries: int = 0
    what: RetryPolicy = RetryPolicy.APPLICATION


class _Operation:
    """Some replicas are being ended; then something is done."""

    def __init__(
        self, places: set[Place], reason: str, ending: Ending, then: Callable[[], None]
    ) -> None:
        self.places = places
        self.reason = reason
        self.ending = ending
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
        reactor: calls it
        folder: where it keeps its records
        run: the app's state
        request: how its processes are started
        policies: what is done when a replica fails, role by role
        spawn: starts a process
        fail_together: ends all replicas when one has failed for good
        adopts: this process is there for the app alone, and all its descendants belong to it
    """

    def __init__(
        self,
        reactor: Reactor,
        folder: AppFolder,
        run: AppRun,
        request: PopenRequest,
        policies: list[Policy],
        spawn: Spawn,
        *,
        fail_together: bool = False,
        adopts: bool = False,
    ) -> None:
        self.run = run
        self.folder = folder
        self.request = request
        #: Set once the app has ended and all there is to know of it is written.
        self.ended = threading.Event()
        #: Held while ``run`` changes; hold it to read several things that belong together.
        self.lock = threading.Lock()
        self.guard: Guard | None = None
        #: Called with the final state, just before :attr:`ended` is set.
        self.on_end: list[Callable[[AppState], None]] = []
        self._reactor = reactor
        self._policies = policies
        self._may_retry = any(policy.max_retries for policy in policies)
        self._spawn = spawn
        self._fail_together = fail_together
        self._adopts = adopts
        self._running: dict[Place, Any] = {}
        self._operations: list[_Operation] = []
        self._retries: dict[object, int] = {}
        self._logs: dict[Place, ReplicaLogs] = self._make_logs()
        self._watches: dict[Place, list[int]] = {}
        self._is_watching = False
        self._dirty: set[Place] = set()
        self._merge_timer: Timer | None = None
        self._times_timer: Timer | None = None
        self._poll_seconds = _POLL_SECONDS[0]
        self._problems: dict[str, None] = {}
        self._unwritten: list[Event] = []
        self._failed_places: set[Place] = set()
        self._is_cancelled = False
        self._is_cleaned = False
        self._is_settling = False

    # -- events

    def record(self, *events: Event) -> None:
        """Changes the state; what happened is written to the journal with :meth:`flush`.

        May be called by another thread before :meth:`begin`.
        """
        with self.lock:
            for event in events:
                self.run.apply(event)
        self._unwritten += events

    def flush(self) -> None:
        """Writes to the journal what was recorded.

        Raises:
            OSError: it cannot be written; it is kept and tried again
        """
        events, self._unwritten = self._unwritten, []
        self.folder.append(events)

    def started(self, place: Place, process: Any) -> None:
        """Records that a replica was started."""
        self.record(["start", *place, *processes.identify_child(process.pid), time.time()])

    def not_started(self, place: Place, error: Exception) -> None:
        """Records that a replica could not be started."""
        reason = self.why_not_started(place, error)
        self.record(["exit", *place, AppState.FAILED.value, None, reason, None, time.time()])

    def why_not_started(self, place: Place, error: Exception) -> str:
        """Returns why a process could not be started, in words."""
        if isinstance(error, TorchXError):
            return str(error)
        param = self._param(place)
        program = param.args[0] if param.args else ""
        what = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
        if param.cwd is not None and not os.path.isdir(param.cwd):
            return f"cannot run '{program}' in {param.cwd}: no such folder"
        return f"cannot run '{program}': {what}"

    # -- the beginning

    def begin(self, running: Mapping[Place, Any]) -> None:
        """Takes over the processes that were started; the reactor is held until the app's end."""
        self._running.update(running)
        for place, process in running.items():
            self._look_at(place, process)
        if self.folder.is_cancelled():
            self.cancel()
        for place in self._places():
            replica = self.run.replica(*place)
            if place not in running and replica.state == AppState.FAILED:
                self._failed_for_good(place)
        self._reactor.call_later(_WATCH_AFTER_SECONDS, self._watch_logs)
        self._settle_soon()

    def is_final(self, role: str, k: int) -> bool:
        """Returns True once nothing more comes of a replica; may be called by any thread."""
        with self.lock:
            if is_terminal(self.run.state):
                return True
            return self.run.roles[role][k].is_final(self._may_retry)

    def log(self, role: str, k: int, stream: Stream | None) -> ReplicaLog:
        """Returns a log of a replica; may be called by any thread.

        Raises:
            UnknownReplicaError: there is no such replica
        """
        path = log_path(self.request, role, k, stream)
        return ReplicaLog(path, lambda: self.is_final(role, k), self.folder.journal)

    def cancel_soon(self) -> None:
        """Ends the app as cancelled; may be called by any thread, and by signal handlers."""
        if self.ended.is_set():
            return
        try:
            self.folder.mark_cancelled()
        except OSError:
            pass  # others can't see it, but it is done all the same
        self._reactor.call_soon(self.cancel)

    def wait_for_end(self) -> None:
        """Waits for the end of an app that is being cancelled; may be called by any thread.

        Raises:
            BackendError: its processes do not end
        """
        if not self.ended.wait(ending.GRACE + _KILL_SECONDS):
            pids = ", ".join(str(process.pid) for process in self._running.values())
            raise BackendError(
                f"processes of {self.run.app_id} have not ended, though they were killed: {pids}"
            )

    def cancel(self) -> None:
        """Ends the app as cancelled."""
        if self._is_cancelled or self.ended.is_set():
            return
        self._is_cancelled = True
        self._end_everything("cancelled")

    # -- a process has ended

    def _look_at(self, place: Place, process: Any) -> None:
        """Records the end of a process that has ended; of another one, sees to be told of it."""
        if place not in self._running or self._running[place] is not process:
            return
        reaped = process_table.now()
        exit_code = process.poll()
        if exit_code is None:
            self._reactor.on_exit(process, lambda: self._look_at(place, process))
            return
        del self._running[place]
        self._merge([place], final=not self._may_retry)
        operation = self._operation_on(place)
        if operation is not None:
            state, reason = AppState.CANCELLED, operation.reason
        elif exit_code == 0:
            state, reason = AppState.SUCCEEDED, ""
        elif self.folder.is_cancelled():  # by another process, which has ended it as well
            state, reason = AppState.CANCELLED, "cancelled"
        else:
            state, reason = AppState.FAILED, describe_exit(exit_code)
        self.record(["exit", *place, state.value, exit_code, reason, reaped, time.time()])
        if state == AppState.FAILED:
            self._failed(place)
        elif state == AppState.CANCELLED and operation is None:
            self.cancel()
        self._settle_soon()

    def _failed(self, place: Place) -> None:
        policy = self._policies[place[0]]
        counted: object
        if policy.what == RetryPolicy.REPLICA:
            counted, places = place, {place}
        elif policy.what == RetryPolicy.ROLE:
            counted, places = place[0], {p for p in self._places() if p[0] == place[0]}
        else:
            counted, places = None, set(self._places())
        retries = self._retries.get(counted, 0)
        if retries >= policy.max_retries or places & self._failed_places:
            self._failed_for_good(place)
            return
        self._retries[counted] = retries + 1
        self.record(["retry", policy.what.value, time.time()])
        reason = f"ended, to start again after {_describe(self.run.replica(*place))}"
        self._end(places, reason, lambda: self._start_again(places))

    def _failed_for_good(self, place: Place) -> None:
        self._failed_places.add(place)
        if self._fail_together and not self._is_cancelled:
            self._end_everything(f"ended because of {_describe(self.run.replica(*place))}")

    def _start_again(self, places: set[Place]) -> None:
        # All are started before any is looked at: one may have failed already, which may end the
        # app, or start it once more, and that must know of each.
        started: dict[Place, Any] = {}
        not_started = []
        for place in sorted(places):
            if self.folder.is_cancelled():
                break
            self._merge([place])
            attempt = self.run.replica(*place).restarts + 1
            try:
                if place in self._logs:
                    self._logs[place].end_line()
                _put_aside(self._param(place).env.get(ENV_ERROR_FILE), attempt)
                process = self._spawn(place, attempt)
            except Exception as e:  # a subclass may raise anything
                self.not_started(place, e)
                not_started.append(place)
                continue
            self.started(place, process)
            self._running[place] = started[place] = process
        for place, process in started.items():
            self._reactor.call_next(partial(self._look_at, place, process))
            if self._is_watching:
                self._watch(place)
        for place in not_started:
            self._failed_for_good(place)
        # whoever cancelled it meanwhile has not seen those that were only just started
        if self.folder.is_cancelled():
            self.cancel()

    # -- ending

    def _operation_on(self, place: Place) -> _Operation | None:
        return next((o for o in self._operations if place in o.places), None)

    def _end_everything(self, reason: str) -> None:
        self._end(set(self._places()), reason, lambda: None)

    def _end(self, places: set[Place], reason: str, then: Callable[[], None]) -> None:
        """Ends replicas with all that they have started; then does something."""
        for operation in list(self._operations):
            if operation.places & places:
                # the newer one is wider: a role instead of a replica, the app instead of a role
                operation.abandon()
                self._operations.remove(operation)
                places |= operation.places
        tokens = {self.run.token(*place) for place in places}
        everything = len(places) == len(self._places())

        def find() -> set[ProcessId]:
            leaders = [leader for leader in self.run.leaders() if leader.token in tokens]
            if not everything:
                return processes.find_processes(leaders, tokens.__contains__, self.run.begun)
            return processes.find_processes(leaders, self.run.owns, self.run.begun, self._spared())

        operation = _Operation(places, reason, Ending(find), then)
        self._operations.append(operation)
        for place in places:
            self._end_unknown(place)
        self._step(operation)

    def _end_unknown(self, place: Place) -> None:
        """Ends what a subclass started that is no process of this machine."""
        process = self._running.get(place)
        known = self.run.replica(*place).process
        if process is not None and (known is None or not known.start):
            process.kill()

    def _step(self, operation: _Operation) -> None:
        if operation.is_over:
            return
        if operation.timer is not None:
            operation.timer.cancel()
        seconds = operation.ending.step()
        if seconds is None:
            # those that were ours to wait for come by themselves
            if not any(place in self._running for place in operation.places):
                operation.abandon()
                self._operations.remove(operation)
                operation.then()
                self._settle()
                return
            seconds = _LOOK_SECONDS
        for process in operation.ending.members - operation.watched:
            operation.watched.add(process)
            if not self._reactor.on_pid_exit(process.pid, lambda: self._step(operation)):
                seconds = min(seconds, _LOOK_SECONDS)
        operation.timer = self._reactor.call_later(seconds, lambda: self._step(operation))

    # -- logs

    def _make_logs(self) -> dict[Place, ReplicaLogs]:
        logs = {}
        for i, params in enumerate(self.request.role_params.values()):
            for k, param in enumerate(params):
                if param.stdout and param.stderr and param.combined:
                    logs[i, k] = ReplicaLogs(param.stdout, param.stderr, param.combined)
        return logs

    def _watch_logs(self) -> None:
        if self.ended.is_set():
            return
        self._is_watching = True
        for place in list(self._running):
            self._watch(place)
        self._merge(self._logs)
        if any(place in self._logs and place not in self._watches for place in self._running):
            self._poll_logs()

    def _watch(self, place: Place) -> None:
        logs = self._logs.get(place)
        if logs is None or place in self._watches:
            return
        keys = [
            self._reactor.on_change(path, lambda: self._changed(place))
            for path in dict.fromkeys((logs.stdout, logs.stderr))
        ]
        if None not in keys:
            self._watches[place] = [key for key in keys if key is not None]

    def _poll_logs(self) -> None:
        if self.ended.is_set():
            return
        quickest, slowest = _POLL_SECONDS
        found = self._merge(self._logs)
        self._poll_seconds = quickest if found else min(self._poll_seconds * 1.5, slowest)
        self._reactor.call_later(self._poll_seconds, self._poll_logs)

    def _changed(self, place: Place) -> None:
        if not self._dirty and self._merge_timer is None:
            # at once, but then not again for a moment: a busy writer makes thousands of events
            self._merge([place])
            self._merge_timer = self._reactor.call_later(_MERGE_PAUSE_SECONDS, self._merge_dirty)
        else:
            self._dirty.add(place)

    def _merge_dirty(self) -> None:
        self._merge_timer = None
        if self._dirty:
            dirty, self._dirty = self._dirty, set()
            self._merge(dirty)
            self._merge_timer = self._reactor.call_later(_MERGE_PAUSE_SECONDS, self._merge_dirty)

    def _merge(self, places: Iterable[Place], final: bool = False) -> bool:
        found = False
        for place in places:
            logs = self._logs.get(place)
            if logs is None:
                continue
            try:
                found |= logs.finish() if final else logs.merge()
            except OSError as e:
                if final:
                    replica = self.run.replica(*place)
                    self._problems[
                        f"combined.log of {replica.role}/{replica.id} is incomplete:"
                        f" {e.strerror or e}"
                    ] = None
        if found and self._times_timer is None and not final:
            self._times_timer = self._reactor.call_later(_TIMES_SECONDS, self._record_times)
        return found

    def _record_times(self) -> None:
        self._times_timer = None
        if self.ended.is_set():
            return
        waiting = [logs.record_times() for logs in self._logs.values()]
        if any(waiting):
            self._times_timer = self._reactor.call_later(_TIMES_SECONDS, self._record_times)

    # -- the end

    def _settle_soon(self) -> None:
        """Settles once for all processes that have ended at the same time."""
        if not self._is_settling:
            self._is_settling = True
            self._reactor.call_next(self._settle)

    def _settle(self) -> None:
        """Ends the app if nothing is left to run; else writes what has happened."""
        self._is_settling = False
        if not self._running and not self._operations and not self.ended.is_set():
            if self._is_cleaned or not processes.may_have_left_processes(
                self.run.leaders(), self.run.owns, self._spared()
            ):
                self._finish()
                return
            self._is_cleaned = True
            self._end_everything("")
            return
        try:
            self.flush()
        except OSError:
            pass  # kept for later

    def _finish(self) -> None:
        try:
            self._write_end()
        finally:
            if not is_terminal(self.run.state):
                self.record(["end", AppState.FAILED.value, "its supervision failed", time.time()])
            if self.guard is not None:
                self.guard.dismiss()
            self.folder.close()
            for call in self.on_end:
                call(self.run.state)
            self.ended.set()
            if self.guard is not None:
                self.guard.wait()
            remove_old()
            self._reactor.release()

    def _write_end(self) -> None:
        for keys in self._watches.values():
            for key in keys:
                self._reactor.forget(key)
        self._merge(self._logs, final=True)
        if self._is_cancelled or self.folder.is_cancelled():
            state, msg = AppState.CANCELLED, "cancelled"
        else:
            failed = [r for r in self.run.replicas if r.state == AppState.FAILED]
            state = AppState.FAILED if failed else AppState.SUCCEEDED
            msg = _describe_all(failed)
        if self._problems:
            msg = "; ".join([msg, *self._problems] if msg else self._problems)
        when = time.time()
        try:
            self.folder.write_success(self.run, self.request, state, when)
        except OSError:
            pass  # it repeats what the journal has
        self.record(["end", state.value, msg, when])
        try:
            self.flush()
        except OSError:
            pass  # this process still knows

    # -- small helpers

    def own_pids(self) -> set[int]:
        """Returns the processes that are waited for here."""
        pids = {process.pid for process in self._running.values()}
        return pids if self.guard is None else pids | {self.guard.process.pid}

    def _spared(self) -> processes.Spared | None:
        return self.own_pids() - {p.pid for p in self._running.values()} if self._adopts else None

    def _places(self) -> list[Place]:
        return [(i, k) for i, role in enumerate(self.run.roles.values()) for k in range(len(role))]

    def _param(self, place: Place) -> Any:
        return list(self.request.role_params.values())[place[0]][place[1]]


def _describe(replica: ReplicaRun) -> str:
    return f"{replica.role}/{replica.id}: {replica.reason}"


def _describe_all(replicas: list[ReplicaRun]) -> str:
    if not replicas:
        return ""
    first = _describe(replicas[0])
    return first if len(replicas) == 1 else f"{first} (and {len(replicas) - 1} more replicas)"


def _put_aside(error_file: str | None, attempt: int) -> None:
    """Renames the error that an earlier attempt has left: the next one may succeed."""
    if error_file:
        stem, extension = os.path.splitext(error_file)
        try:
            os.replace(error_file, f"{stem}.attempt{attempt - 1}{extension}")
        except OSError:
            pass
