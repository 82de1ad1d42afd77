"""The state of apps, from their records and from bjobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from torchx_kit.jobs.app_entries import INTERRUPTED
from torchx_kit.jobs.descriptions import combined_state, from_dict, set_times, to_dict
from torchx_kit.jobs.descriptions import description as app_description
from torchx_kit.jobs.records import ReplicaRecord
from torchx_kit.signals import process_exit_code
from torchx_kit.times import moment
from torchx_sched_lsf.client import Lsf, LsfError
from torchx_sched_lsf.job_files.records import Entry, Index, LsfRecord
from torchx_sched_lsf.names import job_name, split_element
from torchx_sched_lsf.queue.queries import (
    Job,
    all_jobs,
    bjobs_msg_to_describe,
    explain_jobs,
    jobs_by_id,
)
from torchx_sched_lsf.states import Explanation, get_job_state, signal_hint
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse

_WAITING = frozenset({"PEND", "PSUSP", "WAIT"})
#: States of jobs in LSF that have started and not ended.
ACTIVE = frozenset({"RUN", "USUSP", "SSUSP"})

logger = logging.getLogger(__name__)


def describe(
    lsf: Lsf,
    index: Index,
    entry: Entry,
    find: Callable[[Entry], Mapping[str, Job]] | None = None,
) -> DescribeAppResponse:
    """Return the description of an app in the index.

    Args:
        lsf: The client.
        index: The index, which keeps the description of an app that has ended.
        entry: The app's index entry.
        find: Function that returns the app's jobs, by id (default: :func:`find_jobs`).

    Raises:
        LsfError: LSF cannot be queried, and not all replicas have recorded their end.
    """
    if entry.final is not None:
        return from_dict(entry.final)
    refresh(lsf, index, entry)
    try:
        jobs = find(entry) if find is not None else find_jobs(lsf, entry)
    except LsfError as e:
        if not _has_recorded_end(lsf, entry):
            raise
        logger.warning("this is the app's own record, because LSF did not answer: %s", e)
        return _AppDescription(lsf, entry, {}).describe({})
    return describe_all(lsf, index, [entry], jobs)[entry.app_id]


def describe_all(
    lsf: Lsf,
    index: Index,
    entries: Collection[Entry],
    jobs: Mapping[str, Job],
    *,
    pending_reasons: bool = True,
) -> dict[str, DescribeAppResponse]:
    """Return the descriptions of apps in the index, by app id.

    LSF is queried only for the reasons why jobs are pending or were killed: once for all apps, or
    twice if LSF is an old version.

    Args:
        lsf: The client.
        index: The index, which keeps the descriptions of apps that have ended.
        entries: The apps' index entries.
        jobs: The apps' jobs, by job id.
        pending_reasons: Whether to query why jobs are pending.
    """
    apps = [_AppDescription(lsf, entry, jobs) for entry in entries if entry.final is None]
    unexplained = [job_id for app in apps for job_id in app.unexplained(pending_reasons)]
    explanations = explain_jobs(lsf, unexplained)
    descriptions = {
        entry.app_id: from_dict(entry.final) for entry in entries if entry.final is not None
    }
    for app in apps:
        description = app.describe(explanations)
        descriptions[app.entry.app_id] = description
        # During the submission, the state is not final: LSF may accept another job of the app.
        is_submitted = app.entry.complete or time.time() > app.entry.submission_deadline
        if is_terminal(description.state) and is_submitted:
            app.entry.final = to_dict(description)
            index.put(app.entry)
    return descriptions


def refresh(lsf: Lsf, index: Index, entry: Entry) -> None:
    """Read the ids of submitted jobs from the app's record, unless the entry has all of them.

    If the submitting process was killed before the script has started, cancel the submission. A
    script that starts later finds this out before it calls bsub, so there is no need to wait.

    The entry of an element is not saved: the index keeps the ids in the entry of the array.
    """
    if entry.complete:
        return
    record = LsfRecord(lsf.host, entry)
    record.read_jobs(entry)
    is_element = bool(split_element(entry.app_id)[1])
    if not is_element and not record.has_begun() and entry.is_abandoned(grace=0):
        record.cancel()
        # The script may have started in the meantime; then it ends the submission.
        if not record.has_begun():
            entry.cancelled = entry.interrupted = entry.complete = True
    if entry.complete and not is_element:
        index.put(entry)


def find_jobs(lsf: Lsf, entry: Entry) -> dict[str, Job]:
    """Return the jobs of an app, by id, in one query.

    During the submission, the jobs are found by their names, and their ids are added to the entry.
    The result then contains the user's other jobs, too.

    Raises:
        LsfError: The query failed.
    """
    if entry.complete:
        return jobs_by_id(lsf, entry.jobs)
    return jobs_by_name([entry], all_jobs(lsf))


def jobs_by_name(entries: Iterable[Entry], jobs: Iterable[Job]) -> dict[str, Job]:
    """Return all given jobs by id, and add the ids to the entries of the apps that have the jobs.

    Args:
        entries: Entries of apps.
        jobs: Jobs with their names.
    """
    by_name = {job.name: job.job_id for job in jobs}
    for entry in entries:
        for role in entry.roles:
            for k, known in enumerate(role.jobs):
                name = job_name(entry.app_id, role.job_name, k)
                role.jobs[k] = known or by_name.get(name, "")
    return {job.job_id: job for job in jobs}


def describe_by_names(
    app_id: str, jobs: list[Job], explanations: Mapping[str, Explanation]
) -> DescribeAppResponse | None:
    """Return the description of an app that is not in the index.

    Roles and replicas come from the names of the jobs. Without a job, return None.

    Args:
        app_id: The app's id.
        jobs: The app's jobs.
        explanations: LSF's explanations of the jobs, by job id.
    """
    lines = [f"{app_id} {job.name} {job.stat} -" for job in jobs]
    description = bjobs_msg_to_describe(app_id, "\n".join(lines))
    if description is not None:
        description.msg = NONE
        set_times_of_jobs(description, explanations.values())
    return description


def set_times_of_jobs(
    app: DescribeAppResponse | ListAppResponse, jobs: Iterable[Explanation]
) -> None:
    """Set the times of an app that is not in the index.

    Args:
        app: The app, with its state.
        jobs: LSF's explanations of the app's jobs.
    """
    jobs = list(jobs)
    submitted = [job.submitted for job in jobs if job.submitted is not None]
    replicas = [
        ReplicaStatus(k, app.state, "", "", started=job.started, ended=job.ended)
        for k, job in enumerate(jobs)
    ]
    set_times(app, min(submitted, default=None), replicas)


def _has_recorded_end(lsf: Lsf, entry: Entry) -> bool:
    """Return whether all replicas have reported their end."""
    record = LsfRecord(lsf.host, entry)
    reports = [
        record.replica(n, k) for n, role in enumerate(entry.roles) for k in range(len(role.jobs))
    ]
    return all(report is not None and report.exit_code is not None for report in reports)


class _AppDescription:
    """A snapshot of an app: the reports of the replicas, and the jobs in LSF."""

    def __init__(self, lsf: Lsf, entry: Entry, jobs: Mapping[str, Job]) -> None:
        self.entry = entry
        self._record = LsfRecord(lsf.host, entry)
        self._jobs = jobs
        self._explanations: Mapping[str, Explanation] = {}
        # The reports are read after the query of bjobs, so a job that bjobs lists as ended has
        # reported its end.
        self._reports = {
            (n, k): self._record.replica(n, k)
            for n, role in enumerate(entry.roles)
            for k in range(len(role.jobs))
        }
        self._first_failure = self._record.first_failure()
        self._is_cancelled = entry.cancelled or self._record.is_cancelled()
        self._is_lost = not any(self._reports.values()) and not self._record.exists()

    def unexplained(self, with_pending: bool) -> list[str]:
        """Return the ids of the jobs of which only LSF knows a reason, or the start.

        A job that has just started may lack a report.

        Args:
            with_pending: Whether to return pending and running jobs in addition to killed ones.
        """
        found = []
        for at, report in self._reports.items():
            job_id = self._job_id(*at)
            job = self._jobs.get(job_id)
            if job is None or job.stat == "DONE":
                continue
            if job.stat in ACTIVE and report is not None:
                continue
            if job.stat in (*_WAITING, *ACTIVE) and not with_pending:
                continue
            has_no_end = job.stat in _WAITING or report is None or report.exit_code is None
            was_killed = report is not None and (report.exit_code or 0) < 0
            if has_no_end or (
                was_killed and not self._is_cancelled and not self._was_ended_by_us(*at)
            ):
                found.append(job_id)
        return found

    def describe(self, explanations: Mapping[str, Explanation]) -> DescribeAppResponse:
        """Return the description.

        Args:
            explanations: Explanations of the jobs from :meth:`unexplained`, by job id.
        """
        self._explanations = explanations
        entry = self.entry
        statuses = []
        for n, role in enumerate(entry.roles):
            replicas = [self._replica_status(n, k) for k in range(len(role.jobs))]
            statuses.append(RoleStatus(role.name, replicas))
        replicas = [replica for role in statuses for replica in role.replicas]
        state = combined_state([replica.state for replica in replicas])
        if state == AppState.FAILED and self._is_cancelled:
            state = AppState.CANCELLED
        found = app_description(entry.app_id, state, self._message(state, statuses), statuses)
        set_times(found, moment(int(entry.submitted)), replicas)
        return found

    def _message(self, state: AppState, statuses: list[RoleStatus]) -> str:
        failure = self._first_failure
        if failure is not None and state == AppState.FAILED:
            return failure.describe_with(statuses)
        missing = sum(not job for role in self.entry.roles for job in role.jobs)
        if missing and not is_terminal(state):
            total = sum(len(role.jobs) for role in self.entry.roles)
            return f"{total - missing} of {total} jobs are submitted"
        reasons = (
            f"{r.role}/{r.id}: {r.reason}"
            for role in statuses
            for r in role.replicas
            if r.reason and r.state == state
        )
        return next(reasons, NONE)

    def _job_id(self, role: int, k: int) -> str:
        return self.entry.roles[role].jobs[k]

    def _was_ended_by_us(self, role: int, k: int) -> bool:
        """Return whether another replica failed first, so that the app's script killed this one."""
        failure = self._first_failure
        return failure is not None and (failure.role, failure.replica) != (role, k)

    def _replica_status(self, role: int, k: int) -> ReplicaStatus:
        status = ReplicaStatus(k, AppState.PENDING, self.entry.roles[role].name, "")
        report = self._reports[role, k]
        job_id = self._job_id(role, k)
        job = self._jobs.get(job_id)
        node = report.node if report is not None else job.host if job is not None else ""
        if node:
            status.hostname = status.hostaddr = status.node = node
        if report is not None:
            status.restarts = report.restarts
        has_ended = report is not None and report.exit_code is not None
        if not job_id:
            self._set_state_of_missing_job(status, role, k)
        elif job is not None and (job.stat in _WAITING or (job.stat in ACTIVE and not has_ended)):
            self._set_state_of_job(status, role, k, job)
            if report is not None and job.stat in _WAITING:
                # LSF requeued the job, so the replica's report is from an earlier run.
                status.reason = "; ".join(filter(None, ("requeued", status.reason)))
        elif report is not None and report.exit_code is not None:
            self._set_recorded_end(status, report.exit_code, role, k)
            if job is not None and job.stat in ACTIVE and report.exit_code != 0:
                # LSF has not yet decided whether the job ends or is requeued.
                status.state, status.reason, status.exit_code = AppState.RUNNING, "", None
        elif job is not None:
            self._set_state_of_job(status, role, k, job)
        else:
            self._set_state_of_forgotten_job(status, report)
        if status.state == AppState.FAILED:
            status.structured_error_msg = self._record.error(role, k) or NONE
        explanation = self._explanations.get(job_id, Explanation())
        if status.state != AppState.PENDING:
            status.started = moment(report.started) if report else explanation.started
        if is_terminal(status.state):
            status.ended = (moment(report.ended) if report else None) or explanation.ended
        return status

    def _set_state_of_missing_job(self, status: ReplicaStatus, role: int, k: int) -> None:
        """Set the state of a replica whose job has no known id."""
        if self._is_cancelled:
            status.state = AppState.CANCELLED
            cause = INTERRUPTED if self.entry.interrupted else "the app was cancelled"
            status.reason = f"{cause} before this job was submitted"
        elif self._was_ended_by_us(role, k):
            status.state = AppState.CANCELLED
            status.reason = "another replica failed before this job was submitted"
        elif self.entry.complete or time.time() > self.entry.submission_deadline:
            status.state = AppState.FAILED
            status.reason = f"{INTERRUPTED} before this job was submitted"
        else:
            status.reason = "not submitted yet"

    def _set_recorded_end(self, status: ReplicaStatus, exit_code: int, role: int, k: int) -> None:
        status.exit_code = exit_code
        status.state = AppState.SUCCEEDED if exit_code == 0 else AppState.FAILED
        status.reason = self._record.describe_end(role, k, exit_code)
        if exit_code >= 0:
            return
        if self._is_cancelled:
            status.state = AppState.CANCELLED
        elif not self._was_ended_by_us(role, k):
            self._explain(status, self._job_id(role, k))
            if ";" not in status.reason and signal_hint(exit_code):
                status.reason += f"; {signal_hint(exit_code)}"

    def _set_state_of_job(self, status: ReplicaStatus, role: int, k: int, job: Job) -> None:
        status.state = get_job_state(job.stat, "")
        if status.state == AppState.FAILED and self._was_ended_by_us(role, k):
            status.state = AppState.CANCELLED
            status.reason = "another replica failed before this one started"
            return
        self._explain(status, job.job_id)
        if status.state == AppState.FAILED and self._is_cancelled:
            status.state = AppState.CANCELLED
        if status.state == AppState.FAILED and status.exit_code == 127 and not status.reason:
            host = f"host {job.host}" if job.host else "the host"
            status.reason = (
                f"exit code 127: {host} cannot see {self.entry.folder}; set the option jobdir to a"
                " directory on a file system that all hosts share"
            )

    def _set_state_of_forgotten_job(
        self, status: ReplicaStatus, report: ReplicaRecord | None
    ) -> None:
        if self._is_cancelled:
            status.state, status.reason = AppState.CANCELLED, "cancelled"
        elif report is None and self._is_lost:
            status.state = AppState.FAILED
            status.reason = (
                f"its outcome is unknown: LSF has forgotten it, and {self.entry.record} is missing"
            )
        elif report is None:
            status.state = AppState.CANCELLED
            status.reason = "it left the queue before it started"
        else:
            status.state = AppState.FAILED
            status.reason = (
                "it left the queue without reporting its end: it was killed, or its host failed"
            )

    def _explain(self, status: ReplicaStatus, job_id: str) -> None:
        """Add LSF's reason and exit code to a status; set CANCELLED if a user killed the job."""
        explanation = self._explanations.get(job_id, Explanation())
        status.reason = "; ".join(filter(None, (status.reason, explanation.reason)))
        if status.exit_code is None and explanation.exit_code is not None:
            status.exit_code = process_exit_code(explanation.exit_code)
        if status.state == AppState.FAILED and explanation.cancelled:
            status.state = AppState.CANCELLED
