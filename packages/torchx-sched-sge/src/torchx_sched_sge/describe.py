"""The state of apps, from their records, from qstat, and from the accounting."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from torchx_kit.jobs.app_entries import INTERRUPTED
from torchx_kit.jobs.descriptions import (
    combined_state,
    description,
    from_dict,
    set_times,
    to_dict,
)
from torchx_kit.signals import describe_exit, process_exit_code
from torchx_kit.times import moment
from torchx_sched_sge.client import Sge, SgeError
from torchx_sched_sge.names import job_name, split_job_name
from torchx_sched_sge.queries import (
    Ended,
    Task,
    all_tasks,
    ended_tasks,
    error_reason,
    pending_reasons,
)
from torchx_sched_sge.records import Entry, Index, RoleEntry, app_record
from torchx_sched_sge.states import app_state
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse

# How long a task that Grid Engine starts may be missing in the queue, in seconds.
_START_SECONDS = 0.5
_ANOTHER_FAILED = "another replica failed before this one started"

logger = logging.getLogger(__name__)

Tasks = Mapping[tuple[str, int], Task]


def describe(sge: Sge, index: Index, entry: Entry) -> DescribeAppResponse:
    """Return the description of an app in the index, with the reasons why its jobs wait.

    Raises:
        SgeError: Grid Engine cannot be queried, and not all replicas have recorded their end.
    """
    if entry.final is not None:
        return from_dict(entry.final)
    try:
        tasks = all_tasks(sge)
    except SgeError as e:
        if not _has_recorded_end(sge, entry):
            raise
        logger.warning("this is the app's own record, because qstat failed: %s", e)
        tasks = {}
    waiting = {task.job_id for task in tasks.values() if task.is_waiting and not task.has_error}
    jobs = [job for job in entry.jobs if job in waiting]
    return describe_with(sge, index, entry, tasks, pending_reasons(sge, jobs))


def describe_with(
    sge: Sge,
    index: Index,
    entry: Entry,
    tasks: Tasks,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> DescribeAppResponse:
    """Return the description of an app in the index.

    Args:
        sge: The client.
        index: The index, which keeps the description of an app that has ended.
        entry: The app's index entry.
        tasks: The user's tasks in the queue.
        reasons: Why the app's jobs wait, by job id.

    Raises:
        SgeError: A task without a report is missing in the queue, which cannot be queried again.
    """
    if entry.final is not None:
        return from_dict(entry.final)
    app = _AppDescription(sge, entry, tasks, reasons)
    described = app.describe()
    if app.has_vanished:
        # While Grid Engine starts a task, qstat may list it neither as waiting nor as running.
        sge.sleep(_START_SECONDS)
        app = _AppDescription(sge, entry, all_tasks(sge), reasons)
        described = app.describe()
    if is_terminal(described.state) and not app.may_change:
        entry.final = to_dict(described)
        index.put(entry)
    return described


def describe_by_names(app_id: str, tasks: Tasks) -> DescribeAppResponse | None:
    """Return the description of an app that is not in the index, made from the names of its jobs.

    Args:
        app_id: The app's id.
        tasks: The user's tasks in the queue.

    Returns:
        The description; None if no task belongs to the app.
    """
    roles: dict[str, list[ReplicaStatus]] = {}
    submitted = None
    for task in sorted(tasks.values(), key=lambda task: task.number):
        found = split_job_name(task.name)
        if found and found[0] == app_id:
            status = ReplicaStatus(task.number - 1, app_state(task.state), found[1], task.host)
            status.started = task.started
            submitted = submitted or task.submitted
            roles.setdefault(found[1], []).append(status)
    if not roles:
        return None
    state = combined_state(status.state for found in roles.values() for status in found)
    described = description(app_id, state, NONE, [RoleStatus(k, v) for k, v in roles.items()])
    set_times(described, submitted, [replica for role in roles.values() for replica in role])
    return described


def _has_recorded_end(sge: Sge, entry: Entry) -> bool:
    """Return True if all replicas have reported their end."""
    record = app_record(sge.host, entry)
    reports = [
        record.replica(n, k) for n, role in enumerate(entry.roles) for k in range(role.num_replicas)
    ]
    return all(report is not None and report.exit_code is not None for report in reports)


class _AppDescription:
    """A snapshot of an app: the reports of the replicas, and the tasks in the queue.

    Attributes:
        may_change: Whether the description of the ended app may still change.
        has_vanished: Whether a task has left the queue, but never started.
    """

    def __init__(self, sge: Sge, entry: Entry, tasks: Tasks, reasons: Mapping[str, str]) -> None:
        self._sge = sge
        self._reasons = reasons
        self._entry = entry
        self._record = app_record(sge.host, entry)
        self._tasks = tasks
        self.may_change = bool(self._own_tasks())
        # The record is read after the query of the queue. So a task that is not in the queue has
        # already reported its end, unless it was killed.
        self._failure = self._record.first_failure()
        self._ended: dict[str, dict[int, Ended]] = {}
        self.has_vanished = False

    def describe(self) -> DescribeAppResponse:
        """Return the description."""
        entry = self._entry
        statuses = [
            RoleStatus(role.name, [self._replica(n, role, k) for k in range(role.num_replicas)])
            for n, role in enumerate(entry.roles)
        ]
        replicas = [replica for role in statuses for replica in role.replicas]
        # The replicas wait for each other, so the app fails if one of them cannot start.
        state = (
            AppState.FAILED
            if any(task.has_error for task in self._own_tasks())
            else combined_state(replica.state for replica in replicas)
        )
        if state == AppState.FAILED and entry.cancelled:
            state = AppState.CANCELLED
        described = description(entry.app_id, state, self._message(state, statuses), statuses)
        set_times(described, moment(int(entry.submitted)), replicas)
        return described

    def _own_tasks(self) -> list[Task]:
        jobs = set(self._entry.jobs)
        return [task for task in self._tasks.values() if task.job_id in jobs]

    def _message(self, state: AppState, statuses: list[RoleStatus]) -> str:
        failure = self._failure
        if failure is not None and state == AppState.FAILED:
            return failure.describe_with(statuses)
        if not self._entry.complete and not is_terminal(state):
            return "the submission has not ended"
        return next(
            (
                f"{r.role}/{r.id}: {r.reason}"
                for role in statuses
                for r in role.replicas
                if r.reason and r.state == state
            ),
            NONE,
        )

    def _replica(self, n: int, role: RoleEntry, k: int) -> ReplicaStatus:
        status = ReplicaStatus(k, AppState.PENDING, role.name, "")
        report = self._record.replica(n, k)
        task = self._task(role, k)
        node = report.node if report is not None else task.host if task is not None else ""
        status.hostname = status.hostaddr = status.node = node
        if report is not None:
            status.restarts = report.restarts
        if task is not None and task.is_waiting and not self._failed_first(n, k):
            self._set_waiting(status, task, is_requeued=report is not None)
        elif report is not None and report.exit_code is not None:
            status.exit_code = report.exit_code
            status.reason = self._record.describe_end(n, k, report.exit_code)
            status.state = AppState.SUCCEEDED if report.exit_code == 0 else AppState.FAILED
            if report.exit_code < 0 and (self._entry.cancelled or self._was_ended_by_us(n, k)):
                status.state = AppState.CANCELLED
        elif task is not None:
            status.state, status.started = app_state(task.state), task.started
        elif self._entry.cancelled:
            status.state = AppState.CANCELLED
            status.reason = INTERRUPTED if self._entry.interrupted else "cancelled"
        elif self._was_ended_by_us(n, k):
            status.state = AppState.CANCELLED
            status.reason = _ANOTHER_FAILED if report is None else "another replica failed"
        elif not role.job:
            status.reason = "not submitted yet"
        else:
            self._set_killed(status, role, k, has_started=report is not None)
        if status.state == AppState.FAILED:
            status.structured_error_msg = self._record.error(n, k) or NONE
        if report is not None and status.state != AppState.PENDING:
            status.started = moment(report.started)
            status.ended = moment(report.ended) or status.ended
        return status

    def _task(self, role: RoleEntry, k: int) -> Task | None:
        if role.job:
            return self._tasks.get((role.job, k + 1))
        name = job_name(self._entry.app_id, role.job_name)
        return next(
            (task for task in self._tasks.values() if (task.name, task.number) == (name, k + 1)),
            None,
        )

    def _failed_first(self, role: int, k: int) -> bool:
        """Return True if a replica is the first one that failed.

        If the task still waits according to the queue, it has started and failed since the query.
        """
        failure = self._failure
        return failure is not None and (failure.role, failure.replica) == (role, k)

    def _was_ended_by_us(self, role: int, k: int) -> bool:
        """Return True if another replica failed first, so that the script ended this one."""
        return self._failure is not None and not self._failed_first(role, k)

    def _set_waiting(self, status: ReplicaStatus, task: Task, *, is_requeued: bool) -> None:
        if self._failure is not None and not task.has_error:
            # Grid Engine still starts the task, which then ends at once.
            status.state, status.reason = AppState.CANCELLED, _ANOTHER_FAILED
        elif task.has_error:
            self.may_change = True  # an administrator can clear the error
            status.state = AppState.FAILED
            reason = error_reason(self._sge, task.job_id)
            status.reason = f"Grid Engine cannot start it: {reason or 'see qstat -j'}"
        else:
            reason = self._reasons.get(task.job_id, "")
            status.reason = "; ".join(filter(None, ("requeued" if is_requeued else "", reason)))

    def _set_killed(
        self, status: ReplicaStatus, role: RoleEntry, k: int, *, has_started: bool
    ) -> None:
        """Set the state of a replica that left the queue without reporting its end."""
        if role.job not in self._ended:
            self._ended[role.job] = ended_tasks(self._sge, role.job)
        ended = self._ended[role.job].get(k + 1)
        status.state = AppState.FAILED
        if ended is not None:
            status.started, status.ended = ended.started, ended.ended
            status.exit_code = process_exit_code(ended.exit_code)
            status.reason = ended.reason or describe_exit(status.exit_code)
        elif has_started:
            self.may_change = True  # the accounting may be written later
            status.reason = "it left the queue without reporting its end: it was killed"
        else:
            self.has_vanished = True
            status.state, status.reason = AppState.CANCELLED, "deleted before it started"
