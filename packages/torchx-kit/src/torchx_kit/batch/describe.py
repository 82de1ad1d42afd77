"""The state of apps: from the queue, from what the system knows of ended jobs, from the record.

The queue decides while it lists a job as waiting or running. After that, a cause in the system's
accounting decides; without one, the job's own record (:mod:`torchx_kit.jobs.records`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from torchx_kit.batch.entries import INTERRUPTED, SUBMITTING, Entry, Index, RoleEntry
from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.names import JobName
from torchx_kit.batch.states import JobInfo, Phase
from torchx_kit.batch.system import BatchSystem
from torchx_kit.hosts.operations import ReadFiles
from torchx_kit.jobs.arrays import element_id
from torchx_kit.jobs.descriptions import (
    combined_state,
    description,
    from_dict,
    set_times,
    to_dict,
)
from torchx_kit.jobs.error_files import READ_BYTES
from torchx_kit.jobs.pending_reasons import explained
from torchx_kit.jobs.records import REPORTS, JobRecord, ReplicaRecord
from torchx_kit.signals import describe_exit
from torchx_kit.times import moment
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse

# How long a job that starts may be missing in the listing, in seconds.
_START_SECONDS = 0.5
#: The reason of a replica that did not start because another one failed.
ANOTHER_FAILED = "another replica failed before this one started"

logger = logging.getLogger(__name__)


def describe_all(
    system: BatchSystem,
    index: Index,
    entries: Collection[Entry],
    *,
    jobs: Mapping[str, JobInfo] | None = None,
    pending_reasons: bool = True,
    app_type: type[AppSnapshot] | None = None,
) -> dict[str, DescribeAppResponse]:
    """Return the descriptions of apps, by app id, in one request for all of them.

    A second request follows if the listing does not say why jobs wait or have ended.

    Args:
        system: The batch system.
        index: The index, which keeps the descriptions of apps that have ended.
        entries: The index entries of the apps. None of them is an array.
        jobs: The jobs of the apps, by id; None means that they are queried.
        pending_reasons: Whether to query why jobs wait.
        app_type: The class that describes an app; None means :class:`AppSnapshot`.

    Raises:
        BatchError: The system cannot be queried, and an app's replicas have not all recorded their
            end.
    """
    app_type = app_type or AppSnapshot
    found = {one.app_id: from_dict(one.final) for one in entries if one.final is not None}
    active = [
        one
        for one in entries
        if one.final is None
        or (
            app_type.may_start_again
            and (jobs is None or system.phase_of(jobs.get(one.app_id)).is_in_queue)
        )
    ]
    if not active:
        return found
    apps, is_answered = read_apps(system, active, jobs, app_type)
    if is_answered:
        wanted = [job for app in apps for job in app.unexplained(pending_reasons)]
        explanations = system.explain(wanted) if wanted else {}
        if any(app.has_vanished(explanations) for app in apps):
            # While the system starts a job, it may list it neither as waiting nor as running.
            system.sleep(_START_SECONDS)
            apps, is_answered = read_apps(system, active, None, app_type)
    for app in apps:
        described = app.describe(explanations if is_answered else {})
        found[app.entry.app_id] = described
        if is_answered and not app.may_change:
            final = to_dict(described) if is_terminal(described.state) else None
            if final != app.entry.final:
                app.entry.final = final
                index.put(app.entry)
    return found


def read_apps(
    system: BatchSystem,
    entries: Collection[Entry],
    jobs: Mapping[str, Any] | None,
    app_type: type[AppSnapshot],
) -> tuple[list[AppSnapshot], bool]:
    """Return snapshots of apps, and whether the system answered.

    The records are read after the query. So a job that the listing lacks has already reported its
    end, unless it was killed.

    Args:
        system: The batch system.
        entries: The index entries of the apps.
        jobs: The jobs of the apps, by id; None means that they are queried.
        app_type: The class of the snapshots.

    Raises:
        BatchError: The system cannot be queried, and an app's replicas have not all recorded their
            end.
    """
    limit = READ_BYTES + 1
    reads = [ReadFiles(entry.record, app_type.reports, limit=limit) for entry in entries]
    has_ids = all(entry.complete for entry in entries)
    ids = list(dict.fromkeys(job for entry in entries for job in entry.jobs))
    error: BatchError | None = None
    if jobs is None:
        try:
            jobs, files = system.listing(ids if has_ids else None, reads)
        except BatchError as e:
            jobs, files, error = {}, system.batch(reads), e
    else:
        files = system.batch(reads)
    system.add_job_ids(entries, jobs.values())
    apps = [
        app_type(system, entry, jobs, app_type.record_type(system.host, entry.record, content))
        for entry, content in zip(entries, files, strict=True)
    ]
    if error is not None:
        if not all(app.has_recorded_end() for app in apps):
            raise error
        logger.warning("this is the app's own record, because %s failed: %s", system.title, error)
    return apps, error is None


class AppSnapshot:
    """A snapshot of an app: its jobs in the listing, and the reports of its replicas.

    Args:
        system: The batch system.
        entry: The app's index entry.
        jobs: Jobs and tasks by id.
        record: The app's record, with the content of its files.

    Attributes:
        may_change: Whether the description of the ended app may still change.
    """

    #: The class of the record.
    record_type: ClassVar[type[JobRecord]] = JobRecord
    #: Patterns of the names of the record's files.
    reports: ClassVar[tuple[str, ...]] = REPORTS
    #: Whether an app may start again after its end, so that the system is queried even then.
    may_start_again: ClassVar[bool] = False

    def __init__(
        self, system: BatchSystem, entry: Entry, jobs: Mapping[str, JobInfo], record: JobRecord
    ) -> None:
        self.entry = entry
        self._system = system
        self._record = record
        self._failure = record.first_failure()
        self._replicas = {
            (n, k): (system.job_of_replica(entry, n, k), record.replica(n, k))
            for n, role in enumerate(entry.roles)
            for k in range(role.num_replicas)
        }
        own = {job_id for job_id, _ in self._replicas.values()}
        self._jobs = {job_id: jobs[job_id] for job_id in own if job_id in jobs}
        self.may_change = not entry.submitted or any(
            not system.phase_of(job).has_ended for job in self._jobs.values()
        )
        self._explanations: Mapping[str, JobInfo] = {}

    def has_recorded_end(self) -> bool:
        """Return whether all replicas have reported their end."""
        return all(
            report is not None and report.exit_code is not None
            for _, report in self._replicas.values()
        )

    def unexplained(self, with_pending: bool) -> list[JobInfo]:
        """Return the jobs about which the system may know more than the listing and the record.

        Args:
            with_pending: Whether to return waiting and running jobs in addition to ended ones.
        """
        found = []
        for at, (job_id, report) in self._replicas.items():
            if not job_id:
                continue
            job = self._jobs.get(job_id, JobInfo(job_id))
            phase = self._system.phase_of(job)
            code = report.exit_code if report is not None else None
            if phase.is_in_queue:
                is_unclear = phase is not Phase.RUNNING or not (report or job.started)
                is_wanted = with_pending and is_unclear
            elif code is None or code < 0:
                is_ended_by_us = self.entry.cancelled or self._is_ended_by_failure(at)
                is_wanted = code is None or not is_ended_by_us
            else:
                is_wanted = code == 0 and phase is Phase.FAILED
            if is_wanted:
                found.append(job)
        return found

    def has_vanished(self, explanations: Mapping[str, JobInfo]) -> bool:
        """Return whether a job that has not started is missing in the listing."""
        return (
            bool(self.entry.submitted)
            and not self.entry.cancelled
            and any(
                job_id and not (report or job_id in self._jobs or job_id in explanations)
                for job_id, report in self._replicas.values()
            )
        )

    def describe(self, explanations: Mapping[str, JobInfo]) -> DescribeAppResponse:
        """Return the description.

        Args:
            explanations: What the system knows about the jobs of :meth:`unexplained`, by id.
        """
        self._explanations = explanations
        statuses = [
            RoleStatus(role.name, [self._replica(n, k) for k in range(role.num_replicas)])
            for n, role in enumerate(self.entry.roles)
        ]
        state, message = self._summary(statuses)
        found = description(self.entry.app_id, state, message, statuses)
        submitted, started, ended = self._times(state)
        replicas = [replica for role in statuses for replica in role.replicas]
        set_times(found, submitted, replicas, started=started, ended=ended)
        found.attempts = self._record.attempt_statuses(state, found.ended)
        if found.attempts:
            found.num_restarts = found.attempts[-1].number
        return found

    def _summary(self, statuses: list[RoleStatus]) -> tuple[AppState, str]:
        """Return the state of the app, and a message."""
        state = combined_state(replica.state for role in statuses for replica in role.replicas)
        if any(self._system.phase_of(job) is Phase.ERROR for job in self._jobs.values()):
            # The replicas wait for each other, so the app fails if one of them cannot start.
            state = AppState.FAILED
        if state == AppState.FAILED and self.entry.cancelled:
            state = AppState.CANCELLED
        return state, self._message(state, statuses)

    def _times(self, state: AppState) -> tuple[datetime | None, datetime | None, datetime | None]:
        """Return when the app was submitted, has started, and has ended, as far as known.

        Args:
            state: The state of the app.
        """
        times = (job.submitted for job in self._jobs.values() if job.submitted is not None)
        return moment(int(self.entry.submitted)) or min(times, default=None), None, None

    def _message(self, state: AppState, statuses: list[RoleStatus]) -> str:
        if state == AppState.FAILED and (refusal := self._record.refusal()):
            return refusal
        if self._failure is not None and state == AppState.FAILED:
            return self._failure.describe_with(statuses)
        if not self.entry.complete and not is_terminal(state):
            return SUBMITTING
        reasons = (
            f"{r.role}/{r.id}: {r.reason}"
            for role in statuses
            for r in role.replicas
            if r.reason and r.state == state
        )
        return next(reasons, NONE)

    def _is_ended_by_failure(self, at: tuple[int, int]) -> bool:
        """Return whether another replica failed first."""
        failure = self._failure
        return failure is not None and (failure.role, failure.replica) != at

    def _replica(self, n: int, k: int) -> ReplicaStatus:
        report = self._replicas[n, k][1]
        status = ReplicaStatus(k, AppState.PENDING, self.entry.roles[n].name, "")
        status.node = report.node if report is not None else ""
        self._set_state(status, (n, k), report)
        status.hostname = status.hostaddr = status.node
        if status.state == AppState.FAILED:
            status.structured_error_msg = self._record.error(n, k) or NONE
        return status

    def _set_state(
        self, status: ReplicaStatus, at: tuple[int, int], report: ReplicaRecord | None
    ) -> None:
        """Set the state of a replica, the reason for it, and the times.

        Args:
            status: The status, with the node that the replica has reported.
            at: Role and index of the replica.
            report: The report of the replica; None if it has not started.
        """
        job_id = self._replicas[at][0]
        job = self._jobs.get(job_id)
        info = self._explanations.get(job_id) or job or JobInfo(job_id)
        if report is not None:
            status.restarts = report.restarts
        elif job is not None:
            status.node = job.node
        phase = self._system.phase_of(job)
        has_ended = report is not None and report.exit_code is not None
        # A replica that has failed after the query is not waiting any more.
        failed_since = self._failure is not None and not self._is_ended_by_failure(at)
        if not (self.entry.submitted or job or job_id in self._explanations):
            status.state = AppState.UNKNOWN  # its record is not known, and its job is over
        elif not (job_id or report or self.entry.cancelled or self._is_ended_by_failure(at)):
            status.reason = "not submitted yet"
        elif phase is Phase.WAITING and self._is_ended_by_failure(at):
            # The job ends as soon as it starts.
            status.state, status.reason = AppState.CANCELLED, ANOTHER_FAILED
        elif phase is Phase.WAITING and not (failed_since and has_ended):
            requeued = "requeued" if report is not None or info.was_requeued else ""
            status.reason = self._why_waiting(info, requeued)
        elif phase.is_in_queue and not has_ended:
            status.state, status.reason = phase.app_state, self._system.state_of(job).meaning
        elif phase is Phase.RUNNING and report is not None and report.exit_code:
            status.state = AppState.RUNNING  # the system may still requeue the job
        else:
            self._set_ended(status, info, report, at)
        if phase is not Phase.WAITING:
            status.started = moment(report.started) if report is not None else info.started
            if is_terminal(status.state):
                status.ended = (moment(report.ended) if report is not None else None) or info.ended

    def _why_waiting(self, job: JobInfo, requeued: str) -> str:
        """Return why a job waits; empty if the system does not say.

        Args:
            job: The job.
            requeued: That the job was requeued; empty if it has not started before.
        """
        reason = explained(job.reason, self._system.reasons)
        reasons = (requeued, self._system.state_of(job).meaning, reason)
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def _set_ended(
        self,
        status: ReplicaStatus,
        info: JobInfo,
        report: ReplicaRecord | None,
        at: tuple[int, int],
    ) -> None:
        """Set the state of a replica that has ended, or that the listing lacks."""
        state = self._system.state_of(info)
        has_ended = state.phase.has_ended or state.phase is Phase.ERROR
        code = report.exit_code if report is not None else None
        if code is not None:
            status.state = AppState.SUCCEEDED if code == 0 else AppState.FAILED
            status.reason = self._record.describe_end(*at, code)
        elif has_ended or info.cause or info.exit_code is not None:
            code = info.exit_code
            is_unclean = report is not None or not has_ended
            status.state = AppState.FAILED if is_unclean else state.phase.app_state
            if not info.reason:
                status.reason = describe_exit(code or 0) or state.meaning
                if is_unclean and code == 0:
                    status.reason = "it ended without reporting its end"
        elif report is not None:
            self.may_change = True  # the accounting may be written later
            status.state = AppState.FAILED
            status.reason = "it left the queue without reporting its end: it was killed"
        else:
            status.state, status.reason = AppState.CANCELLED, "deleted before it started"
        status.exit_code = code
        cause = self._system.causes.get(info.cause)
        reason = info.reason or (cause.meaning if cause is not None else "")
        status.reason = "; ".join(dict.fromkeys(filter(None, (status.reason, reason))))
        was_killed = code is None or code <= 0
        if cause is not None and was_killed:
            status.state = cause.app_state
        if status.state != AppState.SUCCEEDED and (code is None or code < 0):
            if self.entry.cancelled:
                status.state = AppState.CANCELLED
                if report is None:
                    status.reason = INTERRUPTED if self.entry.interrupted else "cancelled"
            elif self._is_ended_by_failure(at):
                status.state = AppState.CANCELLED
                status.reason = ANOTHER_FAILED if report is None else "another replica failed"


def entries_by_names(system: BatchSystem, jobs: Iterable[JobInfo]) -> dict[str, Entry]:
    """Return entries for apps that are not in the index, made from the names of their jobs.

    Args:
        system: The batch system.
        jobs: Jobs of this user.

    Returns:
        The entries by app id, without times of submissions and without records.
    """
    apps: dict[str, dict[str, dict[int, str]]] = {}
    for job in sorted(jobs, key=lambda job: job.job_id):
        name = JobName.parse(job.name)
        if name is None:
            continue
        task, k, app_id = system.index_of_task(job.job_id), name.replica, name.app_id
        if k is None:
            k = task or 0
        elif task is not None:
            app_id = element_id(app_id, task)
        apps.setdefault(app_id, {}).setdefault(name.role, {})[k] = job.job_id
    found = {}
    for app_id, roles in apps.items():
        found[app_id] = Entry(app_id, "", "", "", complete=True)
        for role, ids in roles.items():
            count = max(ids) + 1
            own = [ids.get(k, "") for k in range(count)]
            job_ids = [system.job_of_task(own[-1])] if system.has_tasks else own
            found[app_id].roles.append(RoleEntry(role, role, count, job_ids))
    return found
