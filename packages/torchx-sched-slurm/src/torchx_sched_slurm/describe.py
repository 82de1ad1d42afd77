"""The state of a job, from its own record, the queue and accounting."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping
from typing import Any

from torchx_kit.batch.describe import ANOTHER_FAILED, AppSnapshot
from torchx_kit.batch.entries import INTERRUPTED, SUBMITTING
from torchx_kit.batch.states import JobInfo
from torchx_kit.batch.system import BatchSystem
from torchx_kit.hosts.api import Host
from torchx_kit.jobs.descriptions import app_exit_code, description, from_dict, set_times
from torchx_kit.jobs.records import REPORTS
from torchx_kit.signals import describe_exit
from torchx_kit.times import moment
from torchx_sched_slurm import states
from torchx_sched_slurm.job_files.records import SlurmEntry, SlurmRecord, record_path
from torchx_sched_slurm.jobs import Job, SlurmJob, expand_nodes
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse

#: Slurm's states of a job that is ending. The job's final state is not known yet.
ENDING = ("COMPLETING", "STAGE_OUT")
# How long the job's own record must wait for Slurm, in seconds: the record of a requeue until Slurm
# lists the job again, and the record of a failure while Slurm is still ending the job.
_RECORD_SECONDS = 60.0
# States of a component that explain why the first component, and so the job, has failed.
_NODE_CAUSES = ("NODE_FAIL", "OUT_OF_MEMORY")


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


class SlurmApp(AppSnapshot):
    """A snapshot of a job or of a task of an array.

    The accounting of a job with a record is ignored until it shows the end: it lags behind the
    controller. Slurm may have given the number of an indexed job to another job; then index entry
    and record are ignored.
    """

    reports = (*REPORTS, "outcome", "started", "ending", "srun", "setup")
    record_type = SlurmRecord
    may_start_again = True

    def __init__(
        self, system: BatchSystem, entry: Any, jobs: Mapping[str, JobInfo], record: Any
    ) -> None:
        self.entry: SlurmEntry = entry
        self.may_change = True
        self._record: SlurmRecord = record
        self._own = self.entry
        self._job: SlurmJob | None = None
        self._use(jobs.get(entry.app_id))

    def _use(self, job: JobInfo | None) -> None:
        """Set what the queue or accounting knows of the job."""
        if not isinstance(job, SlurmJob):
            return
        if job.is_queued or job.has_ended or not self.entry.record:
            self._job = job
            lead = job.parts[0]
            is_known = lead.command is None or lead.mark == self.entry.mark
            if self.entry.submitted and not is_known:
                self._own = SlurmEntry(self.entry.app_id, "", "", "")
                self._record = SlurmRecord(self._record.host, "", {})

    def has_recorded_end(self) -> bool:
        """Return whether the job has recorded its end, or Slurm has shown it before."""
        outcome = self._record.outcome
        is_over = outcome is not None and outcome.state != "REQUEUED"
        return is_over or self.entry.final is not None

    def unexplained(self, with_pending: bool) -> list[JobInfo]:
        """Return the job if only accounting may know it."""
        is_wanted = with_pending and not self._job and self.entry.final is None
        return [JobInfo(self.entry.app_id)] if is_wanted else []

    def has_vanished(self, explanations: Mapping[str, JobInfo]) -> bool:
        """Return False: the queue has a job until the controller forgets its end."""
        return False

    def describe(self, explanations: Mapping[str, JobInfo]) -> DescribeAppResponse:
        """Return the description; ``explanations`` are from accounting."""
        if not self._job:
            self._use(explanations.get(self.entry.app_id))
        own, record, job, final = self._own, self._record, self._job, self.entry.final
        if not job and final is not None:
            return from_dict(final)
        # Slurm forgets ended jobs, so the index keeps the end that Slurm has shown.
        self.may_change = not own.submitted or not job or not (final or job.has_ended)
        state, reason = self.state()
        default = job.state if job and state != AppState.SUCCEEDED else NONE
        statuses = self._roles(state, reason)
        found = description(own.app_id, state, reason or default, statuses)
        found.num_restarts = -1
        if statuses:
            found.num_restarts = record.start.attempt if record.start else 0
        job = job or SlurmJob("")
        started, ended = job.started, job.ended
        if is_terminal(state):
            started = started or (moment(record.start.time) if record.start else None)
            ended = moment(record.outcome.ended) if record.outcome else ended
        submitted = moment(int(own.submitted)) or job.submitted
        replicas = [replica for status in statuses for replica in status.replicas]
        set_times(found, submitted, replicas, started=started, ended=ended)
        found.attempts = record.attempt_statuses(state, found.ended)
        return found

    def state(self) -> tuple[AppState, str]:
        """Return the job's state, and the reason for it.

        Slurm's state of the job wins over the job's own record: only Slurm knows whether a job that
        it has ended, or that has failed, starts again.
        """
        record, job = self._record, self._job
        if not job and not self._own.record:
            return AppState.UNKNOWN, ""
        if not job and self._own.is_announced:
            if self._own.cancelled:
                return AppState.CANCELLED, INTERRUPTED
            return AppState.PENDING, SUBMITTING
        own, own_reason = self._state_from_record()
        is_recent = record.outcome and time.time() - record.outcome.ended < _RECORD_SECONDS
        if not job:
            if own is None or (own == AppState.PENDING and not is_recent):
                return self._state_of_lost_job()
            return own, own_reason
        lead = job.parts[0]
        if lead.state in ENDING:
            # The record may take a preemption for a cancellation. Slurm's final state follows.
            is_unclear = own in (AppState.FAILED, AppState.CANCELLED) and not self._own.cancelled
            if own is None or (is_unclear and is_recent):
                return AppState.RUNNING, "ending"
            return own, own_reason
        state, reason = _state_and_reason(lead.state)
        if state == AppState.PENDING:
            requeue = ""
            if own == AppState.PENDING:
                requeue = own_reason
            elif record.start is not None:
                requeue = f"requeued after attempt {record.start.attempt + 1}"
                if own in (AppState.FAILED, AppState.CANCELLED):
                    requeue += f" ({own_reason})"
            start = moment(int(lead.start)) if lead.start.isdigit() else None
            expected = "" if start is None else start.astimezone().isoformat(timespec="seconds")
            reason = states.explain_pending(lead.state, lead.reason, expected, requeue)
        if lead.state == "FAILED":
            causes = (part.state for part in job.parts[1:] if part.state in _NODE_CAUSES)
            reason = _state_and_reason(next(causes, ""))[1]
        if state in (AppState.FAILED, AppState.CANCELLED) and own in (AppState.FAILED, state):
            reason = reason or own_reason
        return state, reason

    def _state_from_record(self) -> tuple[AppState | None, str]:
        """Return the state that the job's script reported, or None if it reported none."""
        record, outcome = self._record, self._record.outcome
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
        if not ending and self._own.cancelled:
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
        role, k = self._own.roles[failure.role].name, failure.replica
        end = record.describe_end(failure.role, k, failure.exit_code)
        return AppState.FAILED, f"{role}/{k} on {failure.node}: {end}"

    def _state_of_lost_job(self) -> tuple[AppState, str]:
        """Return the state of a job that left the queue and did not report its end."""
        if self._own.cancelled:
            return AppState.CANCELLED, "cancelled"
        if self._record.start is None:
            return AppState.CANCELLED, "it left the queue before it started"
        if self._record.outcome is not None:
            return AppState.CANCELLED, "it left the queue before it started again"
        return (
            AppState.FAILED,
            "it left the queue without reporting its end: it was killed, or its first node failed",
        )

    def _roles(self, state: AppState, reason: str) -> list[RoleStatus]:
        """Return the statuses of the replicas from the state of the job, and the reason for it."""
        parts = self._job.parts if self._job is not None else ()
        nodes = iter([node for part in parts for node in expand_nodes(part.nodes)])
        found = []
        for number, role in enumerate(self._own.roles):
            replicas = []
            for k in range(role.num_replicas):
                status = self._replica_status(number, k, state, reason)
                node = next(nodes, "")
                status.node = status.node or node
                status.hostname = status.hostaddr = status.node
                if status.state == AppState.FAILED:
                    status.structured_error_msg = self._record.error(number, k) or NONE
                replicas.append(status)
            found.append(RoleStatus(role.name, replicas))
        return found

    def _replica_status(self, number: int, k: int, app: AppState, app_reason: str) -> ReplicaStatus:
        role = self._own.roles[number].name
        # while the job is pending, the file of a replica is from an earlier attempt
        report = self._record.replica(number, k) if app != AppState.PENDING else None
        failure = self._record.first_failure() if app == AppState.FAILED else None
        if report is None and failure and (failure.role, failure.replica) != (number, k):
            return ReplicaStatus(k, AppState.CANCELLED, role, "", reason=ANOTHER_FAILED)
        if report is None:
            # the replica has not started, or its file is not visible here yet
            own = AppState.PENDING if app == AppState.RUNNING else app
            return ReplicaStatus(k, own, role, "", reason=app_reason)
        status = ReplicaStatus(
            *(k, app, role, report.node),
            exit_code=report.exit_code,
            node=report.node,
            restarts=report.restarts,
            started=moment(report.started),
            ended=moment(report.ended),
        )
        if report.exit_code is None:
            status.reason = app_reason if is_terminal(app) else ""
        elif report.exit_code == 0:
            status.state = AppState.SUCCEEDED
        else:
            is_cancelled = app == AppState.CANCELLED
            status.state = AppState.CANCELLED if is_cancelled else AppState.FAILED
            status.reason = self._record.describe_end(number, k, report.exit_code)
            if report.exit_code < 0 and app_reason:
                status.reason = f"{describe_exit(report.exit_code)} ({app_reason})"
        return status


def _state_and_reason(slurm_state: str) -> tuple[AppState, str]:
    text = states.FAILURES.get(slurm_state, "")
    state = states.appstate_from_slurm_state(slurm_state)
    return state, f"{slurm_state}: {text}" if text else ""


def list_item(job: JobInfo) -> ListAppResponse:
    """Return the item of the list of apps for a job that the index lacks."""
    is_ending = job.state in ENDING
    state = AppState.RUNNING if is_ending else states.appstate_from_slurm_state(job.state)
    app = ListAppResponse(job.job_id, state, name=job.name)
    set_times(app, job.submitted, started=job.started, ended=job.ended)
    replica = ReplicaStatus(0, state, "", "", exit_code=job.exit_code)
    app.exit_code = app_exit_code(state, [replica])
    return app
