"""The state of a job, from its own record, the queue and accounting."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from torchx_kit.batch.describe import ANOTHER_FAILED, AppSnapshot
from torchx_kit.batch.entries import RoleEntry
from torchx_kit.batch.states import JobInfo
from torchx_kit.batch.system import BatchSystem
from torchx_kit.hosts.api import Host
from torchx_kit.jobs.descriptions import app_exit_code, description, from_dict, set_times
from torchx_kit.jobs.records import REPORTS, ReplicaRecord
from torchx_kit.jobs.submitter import is_interrupted
from torchx_kit.scripts.attempt_script import ATTEMPTS, REFUSED
from torchx_kit.signals import describe_exit, process_exit_code
from torchx_kit.times import moment
from torchx_sched_slurm import states
from torchx_sched_slurm.job_files.records import SlurmEntry, SlurmRecord, record_path
from torchx_sched_slurm.jobs import Component, Job, SlurmJob, expand_nodes, time_of
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse

#: Slurm's states of a job that is ending. The job's final state is not known yet.
ENDING = ("COMPLETING", "STAGE_OUT")
# How long the job's own record must wait for Slurm, in seconds: the record of a requeue until Slurm
# lists the job again, and the record of a failure while Slurm is still ending the job.
_RECORD_SECONDS = 60.0

#: The files of a record that show the state of the job without its replicas.
STATE_FILES = (
    *("outcome", "started", "failed", "ending", "srun", "setup", "setup-*"),
    *(ATTEMPTS, REFUSED),
)


def entry_from_record(host: Host, app_id: str, job: Job) -> SlurmEntry | None:
    """Return an index entry made from the record of a job, or None if the job has no record.

    Args:
        host: The machine with the job's files.
        app_id: The job's id.
        job: The job as the queue or accounting lists it.
    """
    lead = job[0]
    if lead.mark and lead.command and lead.command.startswith("/"):
        path = posixpath.dirname(lead.command)
    elif lead.folder:
        path = record_path(lead.folder, lead.mark or lead.number)
    else:
        return None
    if not host.exists(path):
        return None
    record = SlurmRecord(host, path)
    roles, names = record.roles(), record.names()
    entry = SlurmEntry(app_id, lead.name, record.folder(), path, roles, names=names)
    return entry.with_id(app_id)


def describe_announced(entry: SlurmEntry | None) -> DescribeAppResponse | None:
    """Return the description of a submission of which Slurm has no job.

    Args:
        entry: The index entry with the mark as its id; None if there is no such submission.
    """
    if entry is None or entry.deleted:
        return None
    found = DescribeAppResponse(
        entry.app_id, AppState.SUBMITTED, msg="its submission has not ended"
    )
    if is_interrupted(entry.submitter, entry.submitted):
        found.state = AppState.CANCELLED
        found.msg = "its submission was interrupted, and Slurm has no job of it"
    found.submitted = moment(int(entry.submitted))
    return found


def app_state(
    record: SlurmRecord | None, entry: SlurmEntry | None, job: Job | None
) -> tuple[AppState, str]:
    """Return a job's state, and the reason for it.

    Slurm's state of the job wins over the job's own record: only Slurm knows whether a job that it
    has ended, or that has failed, starts again.

    Args:
        record: The job's record; None if ``entry`` is None.
        entry: The job's index entry, or None if the job is not in the index.
        job: The job as the queue or accounting lists it, or None if neither does.
    """
    if record is None or entry is None:
        return _state_from_slurm(job[0], "") if job else (AppState.UNKNOWN, "")
    listed = states.appstate_from_slurm_state(job[0].state) if job else None
    if job and job[0].state not in ENDING and listed in (AppState.RUNNING, AppState.SUCCEEDED):
        return listed, ""  # without a look at the record: a list has thousands of such jobs
    own, own_reason = _state_from_record(record, entry)
    is_recent = record.outcome and time.time() - record.outcome.ended < _RECORD_SECONDS
    if job is None:
        if own is None or (own == AppState.PENDING and not is_recent):
            return _state_of_lost_job(record, entry)
        return own, own_reason
    lead = job[0]
    if lead.state in ENDING:
        # The record may take a preemption for a cancellation. Slurm's final state follows.
        is_unclear = own in (AppState.FAILED, AppState.CANCELLED) and not entry.cancelled
        if own is None or (is_unclear and is_recent):
            return AppState.RUNNING, "ending"
        return own, own_reason
    requeue = ""
    if record.start is not None and listed == AppState.PENDING:
        cause = f" ({own_reason})" if own in (AppState.FAILED, AppState.CANCELLED) else ""
        requeue = f"requeued after attempt {record.start.attempt + 1}{cause}"
        requeue = own_reason if own == AppState.PENDING else requeue
    state, reason = _state_from_slurm(lead, requeue)
    if lead.state == "FAILED":
        causes = [part.state for part in job[1:] if part.state in ("NODE_FAIL", "OUT_OF_MEMORY")]
        reason = _state_and_reason(causes[0])[1] if causes else ""
    if state in (AppState.FAILED, AppState.CANCELLED) and own in (AppState.FAILED, state):
        reason = reason or own_reason
    return state, reason


def _state_and_reason(slurm_state: str) -> tuple[AppState, str]:
    text = states.FAILURES.get(slurm_state, "")
    state = states.appstate_from_slurm_state(slurm_state)
    return state, f"{slurm_state}: {text}" if text else ""


def _state_from_slurm(lead: Component, requeue: str) -> tuple[AppState, str]:
    """Return state and reason of the component that runs the script.

    Args:
        lead: The component.
        requeue: Why the job waits again if an attempt has started; empty otherwise.
    """
    if lead.state in ENDING:
        return AppState.RUNNING, "ending"
    state, reason = _state_and_reason(lead.state)
    if state == AppState.PENDING:
        start = time_of(lead.start)
        expected = "" if start is None else start.astimezone().isoformat(timespec="seconds")
        return state, states.explain_pending(lead.state, lead.reason, expected, requeue)
    return state, reason


def _state_from_record(record: SlurmRecord, entry: SlurmEntry) -> tuple[AppState | None, str]:
    """Return the state that the job's script reported, or None if it reported none."""
    outcome = record.outcome
    if outcome is None:
        return None, ""
    if outcome.state == "SUCCEEDED":
        return AppState.SUCCEEDED, ""
    cause, ending = record.cause(), record.ending()
    is_ended_by_slurm = bool(ending) and ending.get("JobState") != "RUNNING"
    if outcome.state == "REQUEUED":
        end = "was ended by Slurm" if cause or is_ended_by_slurm else "has failed"
        end += f" ({cause})" if cause else ""
        if record.attempts and record.attempts[-1].reason:
            end = f"ended: {record.attempts[-1].reason}"
        return AppState.PENDING, f"requeued: attempt {outcome.attempt + 1} {end}"
    if line := record.setup_failure():
        return AppState.FAILED, f"setup failed with exit code {outcome.exit_code} at: {line}"
    if cause:
        return _state_and_reason(cause)
    if not ending and entry.cancelled:
        return AppState.CANCELLED, "cancelled"
    if is_ended_by_slurm:
        name = states.base_state(ending.get("JobState", ""))
        if ending.get("Reason") == "TimeLimit":
            name = "TIMEOUT"
        # if Slurm names no cause, a user ended the job
        return _state_and_reason(name if name in states.FAILURES else "CANCELLED")
    if refusal := record.refusal():
        return AppState.FAILED, refusal
    failure = record.first_failure()
    if failure is None:
        return AppState.FAILED, f"exit code {outcome.exit_code}"
    role, k = entry.roles[failure.role].name, failure.replica
    end = record.describe_end(failure.role, k, failure.exit_code)
    return AppState.FAILED, f"{role}/{k} on {failure.node}: {end}"


def _state_of_lost_job(record: SlurmRecord, entry: SlurmEntry) -> tuple[AppState, str]:
    """Return the state of a job that left the queue and did not report its end."""
    if entry.cancelled:
        return AppState.CANCELLED, "cancelled"
    if record.start is None:
        return AppState.CANCELLED, "it left the queue before it started"
    if record.outcome is not None:
        return AppState.CANCELLED, "it left the queue before it started again"
    return (
        AppState.FAILED,
        "it left the queue without reporting its end: it was killed, or its first node failed",
    )


class SlurmApp(AppSnapshot):
    """A snapshot of a job or of a task of an array.

    Attributes:
        job: The job in the queue or in accounting; None if it is unknown. The accounting of a job
            with a record is ignored until it shows the end: it lags behind the controller.
    """

    reports = (*REPORTS, *STATE_FILES)
    record_type = SlurmRecord
    may_start_again = True

    def __init__(
        self, system: BatchSystem, entry: Any, jobs: Mapping[str, JobInfo], record: Any
    ) -> None:
        self.entry: SlurmEntry = entry
        self.may_change = True
        self._job_record: SlurmRecord = record
        self.job = self._settled(jobs.get(entry.app_id))
        lead = self.job[0] if self.job else None
        # Slurm may have given the number of an indexed job to another job.
        self._is_other = (
            bool(entry.submitted)
            and lead is not None
            and lead.command is not None
            and lead.mark != entry.mark
        )

    def _settled(self, job: JobInfo | None) -> Job | None:
        if not isinstance(job, SlurmJob):
            return None
        is_late = not (job.is_queued or has_ended(job.parts))
        return None if self.entry.record and is_late else job.parts

    def _own(self) -> tuple[SlurmRecord | None, SlurmEntry | None]:
        """Return the record and the entry of the job; None if it has none."""
        is_known = bool(self.entry.record) and not self._is_other
        return (self._job_record, self.entry) if is_known else (None, None)

    def has_recorded_end(self) -> bool:
        """Return whether the job has recorded its end, or Slurm has shown it before."""
        outcome = self._job_record.outcome
        is_over = outcome is not None and outcome.state != "REQUEUED"
        return is_over or self.entry.final is not None

    def unexplained(self, with_pending: bool) -> list[JobInfo]:
        """Return the job if only accounting may know it."""
        is_wanted = with_pending and self.job is None and self.entry.final is None
        return [JobInfo(self.entry.app_id)] if is_wanted else []

    def has_vanished(self, explanations: Mapping[str, JobInfo]) -> bool:
        """Return False: the queue has a job until the controller forgets its end."""
        return False

    def describe(self, explanations: Mapping[str, JobInfo]) -> DescribeAppResponse:
        """Return the description; ``explanations`` are from accounting."""
        job = self.job or self._settled(explanations.get(self.entry.app_id))
        final = self.entry.final
        if job is None and final is not None:
            return from_dict(final)
        # Slurm forgets ended jobs, so the index keeps the end that Slurm has shown.
        is_indexed = bool(self.entry.submitted) and not self._is_other
        self.may_change = not is_indexed or job is None or not (final or has_ended(job))
        return describe(self.entry.app_id, *self._own(), job)

    def list_item(self) -> ListAppResponse:
        """Return the entry of the list of apps."""
        return list_item(self.entry.app_id, *self._own(), self.job)


def has_ended(job: Job) -> bool:
    """Return whether a job has ended, as the queue or accounting shows it."""
    return is_terminal(states.appstate_from_slurm_state(job[0].state))


def describe(
    app_id: str, record: SlurmRecord | None, entry: SlurmEntry | None, job: Job | None
) -> DescribeAppResponse:
    """Return the description of a job.

    Args:
        app_id: The job's id.
        record: The job's record; None if ``entry`` is None.
        entry: The job's index entry, or None if the job is not in the index.
        job: The job as the queue or accounting lists it, or None if neither does.
    """
    state, reason = app_state(record, entry, job)
    statuses: list[RoleStatus] = []
    restarts = -1
    if record is not None and entry is not None and entry.roles:
        nodes = [node for part in job or () for node in expand_nodes(part.nodes)]
        statuses = _role_statuses(entry.roles, record, state, reason, nodes)
        restarts = record.start.attempt if record.start else 0
    default = job[0].state if job and state != AppState.SUCCEEDED else NONE
    described = description(app_id, state, reason or default, statuses)
    described.num_restarts = restarts
    replicas = [replica for status in statuses for replica in status.replicas]
    _set_times(described, record, entry, job, replicas)
    if record is not None:
        described.attempts = record.attempt_statuses(state, described.ended)
    return described


def list_item(
    app_id: str, record: SlurmRecord | None, entry: SlurmEntry | None, job: Job | None
) -> ListAppResponse:
    """Return the entry of the list of apps for a job, without reading the replicas' reports.

    Args:
        app_id: The job's id.
        record: The job's record; None if ``entry`` is None.
        entry: The job's index entry, or None if the job is not in the index.
        job: The job as the queue or accounting lists it, or None if neither does.
    """
    state, _ = app_state(record, entry, job)
    app = ListAppResponse(app_id, state, name=entry.name if entry else job[0].name if job else "")
    _set_times(app, record, entry, job)
    codes: list[int | None] = []
    if state == AppState.FAILED:  # a list has thousands of jobs, and only these need their codes
        if record is not None and record.outcome is not None:
            codes.append(process_exit_code(record.outcome.exit_code))
        codes += [_exit_code(part) for part in job or ()]
    app.exit_code = app_exit_code(
        state, [ReplicaStatus(0, state, "", "", exit_code=code) for code in codes]
    )
    return app


def _set_times(
    app: DescribeAppResponse | ListAppResponse,
    record: SlurmRecord | None,
    entry: SlurmEntry | None,
    job: Job | None,
    replicas: list[ReplicaStatus] | None = None,
) -> None:
    """Set the times of an app from its index entry, the job in Slurm, and the job's record.

    Args:
        app: The app, with its state.
        record: The job's record; None if ``entry`` is None.
        entry: The job's index entry, or None if the job is not in the index.
        job: The job as the queue or accounting lists it, or None if neither does.
        replicas: The replicas with their times; None if they were not read.
    """
    submitted = moment(int(entry.submitted)) if entry else None
    started = ended = None
    is_over = is_terminal(app.state)
    if job is not None:
        # Slurm's time of the submission changes when the job is requeued.
        submitted = submitted or _known(min, [part.submitted for part in job])
        if is_over or app.state == AppState.RUNNING:
            # Slurm also sets the start of a job that was cancelled before it got nodes.
            started = _known(min, [part.start for part in job if part.nodes])
        if has_ended(job):
            ended = _known(max, [part.end for part in job])
    # For a list, read the record only if Slurm's times are missing: reading a file of a remote
    # host takes time.
    if record and entry and is_over and (replicas is not None or not (started and ended)):
        if started is None and record.start is not None:
            started = moment(record.start.time)
        ended = moment(record.outcome.ended) if record.outcome else ended
    set_times(app, submitted, replicas or (), started=started, ended=ended)


def _known(choose: Callable[[list[int]], int], times: list[str]) -> datetime | None:
    """Return the first or last of the known times of a job's components; None if none is known.

    Args:
        choose: ``min`` or ``max``.
        times: The times, in the form of :class:`Component`.
    """
    seconds = [int(text) for text in times if text.isdigit()]
    return moment(choose(seconds)) if seconds else None


def _role_statuses(
    roles: list[RoleEntry], record: SlurmRecord, state: AppState, reason: str, nodes: list[str]
) -> list[RoleStatus]:
    statuses = []
    rank = 0
    failure = record.first_failure() if state == AppState.FAILED else None
    for number, role in enumerate(roles):
        replicas = []
        for k in range(role.num_replicas):
            # while the job is pending, the file of a replica is from an earlier attempt
            report = record.replica(number, k) if state != AppState.PENDING else None
            status = _replica_status(role.name, k, report, state, reason)
            if report is not None and status.exit_code and status.exit_code > 0:
                status.reason = record.describe_end(number, k, status.exit_code)
            if report is None and failure and (failure.role, failure.replica) != (number, k):
                status.state = AppState.CANCELLED
                status.reason = ANOTHER_FAILED
            if not status.hostname and rank < len(nodes):
                status.hostname = status.hostaddr = status.node = nodes[rank]
            if status.state == AppState.FAILED:
                status.structured_error_msg = record.error(number, k) or NONE
            replicas.append(status)
            rank += 1
        statuses.append(RoleStatus(role.name, replicas))
    return statuses


def _replica_status(
    role: str, k: int, report: ReplicaRecord | None, app: AppState, app_reason: str
) -> ReplicaStatus:
    if report is None:
        # the replica has not started, or its file is not visible here yet
        own = AppState.PENDING if app == AppState.RUNNING else app
        return ReplicaStatus(k, own, role, "", reason=app_reason)
    state: AppState = app
    reason = ""
    if report.exit_code is None:
        reason = app_reason if is_terminal(app) else ""
    elif report.exit_code == 0:
        state = AppState.SUCCEEDED
    else:
        state = AppState.CANCELLED if app == AppState.CANCELLED else AppState.FAILED
        reason = describe_exit(report.exit_code)
        if report.exit_code < 0 and app_reason:
            reason = f"{reason} ({app_reason})"
    return ReplicaStatus(
        k,
        state,
        role,
        report.node,
        reason=reason,
        exit_code=report.exit_code,
        node=report.node,
        restarts=report.restarts,
        started=moment(report.started),
        ended=moment(report.ended),
    )


def _exit_code(part: Component) -> int | None:
    """Return the exit code of an ended component, negative for a signal; None if unknown."""
    code, _, signal = part.exit_code.partition(":")
    if not (code.isdigit() and signal.isdigit()):
        return None
    return -int(signal) if int(signal) else int(code)
