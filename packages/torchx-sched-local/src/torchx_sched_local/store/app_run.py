"""The state of an app that runs or has ended, and the events that change it.

Every change of the state is an event. The supervisor applies the event to the state in its memory,
and appends the event to the app's journal. Another process reads the journal, applies the same
events, and arrives at the same state.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torchx_kit.jobs.attempts import AttemptRules, refusal
from torchx_sched_local.request import PopenRequest, request_from_dict
from torchx_sched_local.store import records
from torchx_sched_local.store.layout import STDERR_LOG, STDOUT_LOG
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.replica_processes import (
    Leader,
    ProcessId,
    find_processes,
)
from torchx_specs.model.app import RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

#: An event: a list ``[kind, ..., time]`` of JSON values; the time is in seconds since 1970.
Event = list[Any]

#: Why an app or a replica whose records are damaged is CANCELLED.
DAMAGED = "its journal was damaged, so that its final state is not known"


class EndedAttempt(NamedTuple):
    """An attempt of an app with the option ``requeue``.

    Attributes:
        reason: Why it ended, as in :class:`~torchx_specs.model.status.AttemptStatus`.
        step: The newest committed step when it ended; None if there was none.
        started: When it started, in seconds since 1970; 0 if unknown.
        ended: When it ended, in seconds since 1970.
    """

    reason: str
    step: int | None
    started: float
    ended: float


class ReplicaRun:
    """The state of a replica.

    Args:
        role: Name of the replica's role.
        id: Index of the replica in the role.
        role_index: Index of the role in the app.

    Attributes:
        role: Name of the replica's role.
        id: Index of the replica in the role.
        index: Identifies the replica in events: the indices of its role and in its role.
        state: State of the replica.
        process: The replica's first process; None before the replica is started.
        exit_code: Exit code of the latest attempt, negative for a signal; None while it runs.
        reason: Why the replica is in this state.
        restarts: How many times the replica was restarted; -1 before the first start.
        reaped: When ``process`` was reaped, as
            :attr:`~torchx_sched_local.supervise.processes.replica_processes.Leader.reaped`.
        started: When the latest attempt started, in seconds since 1970; 0 if unknown.
        ended: When the latest attempt ended, in seconds since 1970; 0 if unknown.
    """

    # This is no dataclass, because creating a dataclass takes longer than everything else that this
    # module does for a short job.
    def __init__(self, role: str, id: int, role_index: int = 0) -> None:
        self.role = role
        self.id = id
        self.index = (role_index, id)
        self.state = AppState.PENDING
        self.process: ProcessId | None = None
        self.exit_code: int | None = None
        self.reason = ""
        self.restarts = -1
        self.reaped: int | None = None
        self.started = 0.0
        self.ended = 0.0

    @property
    def name(self) -> str:
        """The name of the replica in messages."""
        return f"{self.role}/{self.id}"


class AppRun:
    """The state of an app, which :meth:`apply` changes; in a new object, no replica has started.

    Args:
        data: The app, with the keys ``app_id``, ``session``, ``name``, ``created``, ``appdef``,
            ``fail_together``, ``starter`` (when and where the app was submitted; None if unknown),
            ``requeue`` (whether the app may start again), ``elements`` (the names of the elements
            of an array) and ``roles``. Each role has the keys ``name``, ``replicas``,
            ``max_retries``, ``retry_policy`` and ``ends_app``.
        request: The request; None if it is not known yet.

    Attributes:
        data: The app.
        is_damaged: Whether records of the app are damaged.
        app_id: The app's id.
        roles: The replicas of each role, in order.
        state: State of the app.
        msg: Why the app is in this state.
        num_restarts: How many times a replica, a role or the app was restarted.
        created: When the app was submitted, in seconds since 1970; 0 if unknown.
        started: When the first replica started, in seconds since 1970; 0 if unknown. After a
            restart of the whole app, the first start of its latest attempt counts.
        last_updated: When the state last changed, in seconds since 1970.
        supervisor: The process that supervises the app; None before it starts.
        starter_began: When the submission began, as :func:`process_table.now`; 0 if unknown.
        boot: The boot id of the machine when the app was started.
        node: The host name of the machine.
        ended_attempts: The attempts of an app with the option ``requeue`` that have ended.
        resume_step: The newest committed step before the first attempt; None if there was none.
        waiting: Why the next replica does not start yet; empty if there is no reason.
        cancelled: When the app (the key None) and elements of an array (their indices) were
            cancelled, in seconds since 1970.
    """

    def __init__(self, data: dict[str, Any], request: PopenRequest | None = None) -> None:
        self.data = data
        self._request: PopenRequest | bytes | None = request
        self.is_damaged = False
        self.app_id: str = data["app_id"]
        self.roles = {
            role["name"]: [ReplicaRun(role["name"], k, i) for k in range(role["replicas"])]
            for i, role in enumerate(data["roles"])
        }
        self.state = AppState.RUNNING
        self.msg = ""
        self.num_restarts = 0
        self.created: float = data["created"]
        self.started = 0.0
        self.last_updated = 0.0
        self.supervisor: ProcessId | None = None
        self.starter_began = 0
        self.boot = ""
        self.node = ""
        self.ended_attempts: list[EndedAttempt] = []
        self.resume_step: int | None = None
        self.waiting = ""
        self.cancelled: dict[int | None, float] = {}
        if data["starter"] is not None:
            self._on_starter(data["starter"], self.created)

    @property
    def request(self) -> PopenRequest | None:
        """The request; None if its record is damaged."""
        if isinstance(self._request, bytes):
            self._request = request_from_dict(records.decode(self._request)[1])
        return self._request

    @property
    def resume_dir(self) -> str | None:
        """The folder that all attempts share; None if there is none."""
        return None if self.request is None else self.request.resume_dir

    @property
    def replicas(self) -> list[ReplicaRun]:
        """All replicas, role by role."""
        return [replica for role in self.roles.values() for replica in role]

    def replica(self, role_index: int, k: int) -> ReplicaRun:
        """Return the replica with index ``k`` in the role with index ``role_index``."""
        return list(self.roles.values())[role_index][k]

    @property
    def may_retry(self) -> bool:
        """True if a replica of the app may be restarted."""
        is_retried = any(role["max_retries"] != 0 for role in self.data["roles"])
        return is_retried or bool(self.data["requeue"])

    def element(self, k: int) -> ReplicaRun:
        """Return the current state of an element of an array; do not change it.

        An element that has failed and is going to be restarted is PENDING.
        """
        replica = self.replica(0, k)
        retries = self.data["roles"][0]["max_retries"]
        may_restart = replica.restarts < retries and not is_terminal(self.state)
        if replica.state == AppState.FAILED and may_restart and replica.process:
            state, reason = AppState.PENDING, f"restarts after {replica.reason}"
        elif replica.state == AppState.PENDING and self.is_cancelled(k):
            state, reason = AppState.CANCELLED, "cancelled"
        else:
            return replica
        replica = copy.copy(replica)
        replica.state, replica.reason = state, reason
        return replica

    def token(self, replica: ReplicaRun) -> str:
        """Return the token that marks the processes of a replica."""
        role_index, k = replica.index
        return f"{self.app_id}/{role_index}/{k}"

    def find_processes(
        self, replicas: Iterable[ReplicaRun] | None = None, adopts: bool = False
    ) -> set[ProcessId]:
        """Return all living processes of the app, or of some replicas.

        Args:
            replicas: The replicas; None means all. The paths of their log files are then marks of
                their processes, too.
            adopts: As for :func:`replica_processes.find_processes`.
        """
        some = self.replicas if replicas is None else list(replicas)
        leaders = [Leader(r.process, r.reaped) for r in some if r.process is not None]
        tokens = None if replicas is None else set(map(self.token, some))
        return find_processes(leaders, partial(self._is_marked, tokens), self.begun, adopts)

    def _is_marked(self, tokens: set[str] | None, pid: int) -> bool:
        found = process_table.read_tokens(pid)
        if tokens is not None:
            return not tokens.isdisjoint(found)
        names, folder = (f"/{STDOUT_LOG}", f"/{STDERR_LOG}"), f"/{self.app_id}/"
        return any(token.startswith(folder[1:]) for token in found) or any(
            folder in path and path.removesuffix(" (deleted)").endswith(names)
            for path in process_table.output_files(pid)
        )

    @property
    def begun(self) -> int:
        """A time, as :func:`process_table.now`, before which no process of the app started.

        The value is 0 if the records of this time are damaged. Then the app's token and log files
        alone identify the processes.
        """
        if self.starter_began > 0:
            return self.starter_began
        return max(self.supervisor.start, 0) if self.supervisor else 0

    def apply(self, event: Event | bytes) -> None:
        """Change the state by an event.

        An event of an unknown kind, which a later version of TorchX has written, is ignored, and
        so is every event after the app's end. An event that is not valid does not change the state.

        Args:
            event: The event, or the text of the record of the request.
        """
        if isinstance(event, bytes):
            self._request = event
        elif not isinstance(event, list) or len(event) < 2:
            self.is_damaged = True
        elif not is_terminal(self.state) and event[0] in _HANDLERS:
            try:
                when = float(event[-1])
                _HANDLERS[event[0]](self, *event[1:])
                self.last_updated = when
            except (TypeError, ValueError, LookupError):
                self.is_damaged = True

    def apply_all(self, events: Iterable[Event | bytes]) -> None:
        """Change the state by events."""
        for event in events:
            self.apply(event)

    def reset_state(self) -> None:
        """Set the state of an app that has not ended: it runs, or it waits for its start."""
        is_pending = bool(self.waiting) and not self.started
        self.state = AppState.PENDING if is_pending else AppState.RUNNING
        self.msg = self.waiting

    def steps(self) -> list[int | None]:
        """Return the newest committed step before the first attempt, and after each attempt."""
        return [self.resume_step, *(attempt.step for attempt in self.ended_attempts)]

    def refusal(self, rules: AttemptRules, max_retries: int) -> str | None:
        """Return why the app does not start again; see :func:`torchx_kit.jobs.attempts.refusal`."""
        return refusal(
            rules,
            [attempt.reason for attempt in self.ended_attempts],
            self.steps(),
            self.seconds_of_attempts(),
            max_retries=max_retries,
            has_folder=self.resume_dir is not None,
        )

    def seconds_of_attempts(self) -> float:
        """Return how long the ended attempts have run together."""
        return sum(one.ended - (one.started or one.ended) for one in self.ended_attempts)

    def is_cancelled(self, k: int | None = None) -> bool:
        """Return True once the app, or the element with index ``k``, was cancelled."""
        return None in self.cancelled or k in self.cancelled

    def was_interrupted(self) -> bool:
        """Return True if the machine restarted while the app ran, and it does not run again yet."""
        if self.supervisor is None:
            return self.num_restarts > 0
        return bool(self.boot) and self.boot != process_table.boot_id()

    def _on_starter(self, starter: Mapping[str, Any], when: float) -> None:
        # The app was submitted, or the machine restarted, so that none of its processes lives.
        self.starter_began = int(starter["began"])
        self.boot, self.node = str(starter["boot"]), str(starter["node"])
        self.supervisor = None
        for replica in self.replicas:
            replica.process = replica.reaped = None

    def _on_supervisor(self, pid: int, start: int, boot: str, node: str, when: float) -> None:
        self.supervisor = ProcessId(int(pid), int(start))
        self.boot = boot
        self.node = node

    def _on_start(self, role: int, k: int, pid: int, start: int, when: float) -> None:
        replica = self.replica(role, k)
        replica.process = ProcessId(pid, start)
        replica.state = AppState.RUNNING
        replica.exit_code = replica.reaped = None
        replica.reason = ""
        replica.restarts += 1
        replica.started, replica.ended = float(when), 0.0
        self.started = self.started or float(when)
        self.waiting = ""

    def _on_wait(self, reason: str, when: float) -> None:
        self.waiting = reason

    def _on_exit(
        self,
        role: int,
        k: int,
        state: int,
        exit_code: int | None,
        reason: str,
        reaped: int | None,
        when: float,
    ) -> None:
        replica = self.replica(role, k)
        replica.state = AppState(state)
        replica.exit_code = exit_code
        replica.reason = reason
        replica.reaped = reaped
        replica.ended = float(when)

    def _on_retry(self, what: str, when: float) -> None:
        self.num_restarts += 1
        if what == RetryPolicy.APPLICATION.value:
            self.started = 0.0  # the first start of the next attempt sets it

    def _on_resume(self, step: int | None, when: float) -> None:
        self.resume_step = step

    def _on_attempt(self, reason: str, step: int | None, when: float) -> None:
        self.ended_attempts.append(EndedAttempt(str(reason), step, self.started, float(when)))

    def _on_cancel(self, k: int | None, when: float) -> None:
        self.cancelled.setdefault(k, float(when))

    def _on_end(self, state: int, msg: str, when: float) -> None:
        self.state = AppState(state)
        self.msg = msg
        for replica in self.replicas:
            if self.state == AppState.SUCCEEDED:
                replica.state, replica.exit_code = self.state, 0
            elif not is_terminal(replica.state):
                replica.state = AppState.CANCELLED
                if self.is_damaged:
                    replica.reason = DAMAGED


def describe_starter() -> dict[str, Any]:
    """Return when and where this process submits an app, or starts it again."""
    return {
        "began": process_table.now(),
        "boot": process_table.boot_id(),
        "node": os.uname().nodename,
    }


_HANDLERS: dict[str, Any] = {
    "starter": AppRun._on_starter,
    "supervisor": AppRun._on_supervisor,
    "start": AppRun._on_start,
    "wait": AppRun._on_wait,
    "exit": AppRun._on_exit,
    "retry": AppRun._on_retry,
    "resume": AppRun._on_resume,
    "attempt": AppRun._on_attempt,
    "cancel": AppRun._on_cancel,
    "end": AppRun._on_end,
}
