"""The state of a job, from its own record, the queue and accounting."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from torchx_kit.batch.describe import ANOTHER_FAILED, AppSnapshot
from torchx_kit.batch.entries import INTERRUPTED, SUBMITTING
from torchx_kit.batch.states import JobInfo
from torchx_kit.batch.system import BatchSystem
from torchx_kit.hosts.operations import ReadFiles
from torchx_kit.jobs.descriptions import app_exit_code, from_dict, set_times
from torchx_kit.jobs.records import REPORTS, ReplicaRecord
from torchx_kit.signals import describe_exit
from torchx_kit.times import moment
from torchx_sched_slurm.job_files.records import NAMES, SlurmEntry, SlurmRecord, record_path
from torchx_sched_slurm.job_files.script import SCRIPT
from torchx_sched_slurm.jobs import SlurmJob, expand_nodes, selector
from torchx_sched_slurm.states import FAILURES, appstate_from_slurm_state
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


def entry_from_record(system: BatchSystem, app_id: str, job: SlurmJob) -> SlurmEntry | None:
    """Return an index entry made from the record of a job, or None if the job has no record.

    Args:
        system: The client.
        app_id: The id of the job or array.
        job: The job as the queue or accounting lists it.
    """
    if job.mark and job.command.startswith("/"):
        path = posixpath.dirname(job.command)
    elif job.folder:
        path = record_path(job.folder, job.mark or selector(app_id))
    else:
        return None
    (files,) = system.batch([ReadFiles(path, ("folder", "script", SCRIPT, NAMES))])
    if not files:
        return None
    record = SlurmRecord(system.host, path, files)
    return SlurmEntry(
        *(app_id, job.name, record.folder(), path, record.roles()),
        complete=True,
        names=record.names(),
    )


class SlurmApp(AppSnapshot):
    """A snapshot of a job or of a task of an array. The state of the job decides the replicas'.

    The accounting of a job with a record is ignored until it shows the end: it lags behind the
    controller. Slurm may have given the number of an indexed job to another job; then index entry
    and record are ignored.
    """

    reports = (*REPORTS, "outcome", "started", "setup")
    record_type = SlurmRecord
    may_start_again = True
    entry: SlurmEntry
    _record: SlurmRecord

    def __init__(
        self, system: BatchSystem, entry: Any, jobs: Mapping[str, JobInfo], record: Any
    ) -> None:
        super().__init__(system, entry, jobs, record)
        self.may_change = True
        self._job: SlurmJob | None = None
        self._use(jobs.get(entry.app_id))

    def _use(self, job: JobInfo | None) -> None:
        """Set what the queue or accounting knows of the job."""
        if not isinstance(job, SlurmJob):
            return
        if job.is_queued or self._system.phase_of(job).has_ended or not self.entry.record:
            self._job = job
            if self.entry.submitted and job.mark != self.entry.mark:
                self.entry = SlurmEntry(self.entry.app_id, "", "", "")
                self._record = SlurmRecord(self._record.host, "", {})

    def has_recorded_end(self) -> bool:
        """Return whether the job has recorded its end, or Slurm has shown it before."""
        outcome = self._record.outcome
        is_over = outcome is not None and outcome.state != "REQUEUED"
        return is_over or self.entry.final is not None

    def unexplained(self, with_pending: bool) -> list[JobInfo]:
        """Return the job if only accounting may know it."""
        is_known = self._job or self.entry.final is not None or self.entry.is_announced
        return [JobInfo(self.entry.app_id)] if with_pending and not is_known else []

    def has_vanished(self, explanations: Mapping[str, JobInfo]) -> bool:
        """Return False: the queue has a job until the controller forgets its end."""
        return False

    def describe(self, explanations: Mapping[str, JobInfo]) -> DescribeAppResponse:
        """Return the description; ``explanations`` are from accounting."""
        if not self._job:
            self._use(explanations.get(self.entry.app_id))
        job, final = self._job, self.entry.final
        if not job and final is not None:
            return from_dict(final)
        # Slurm forgets ended jobs, so the index keeps the end that Slurm has shown.
        has_ended = job is not None and self._system.phase_of(job).has_ended
        self.may_change = not self.entry.submitted or not job or not (final or has_ended)
        self._state, self._reason = self.state()
        parts = job.parts or (job,) if job else ()
        self._nodes = iter([node for part in parts for node in expand_nodes(part.nodes)])
        found = super().describe(explanations)
        found.num_restarts = -1
        if found.roles:
            found.num_restarts = self._record.start.attempt if self._record.start else 0
        return found

    def _summary(self, statuses: list[RoleStatus]) -> tuple[AppState, str]:
        default = self._job.state if self._job and self._state != AppState.SUCCEEDED else NONE
        return self._state, self._reason or default

    def _times(self, state: AppState) -> tuple[datetime | None, datetime | None, datetime | None]:
        record, job = self._record, self._job or JobInfo("")
        started, ended = job.started, job.ended
        if is_terminal(state):
            started = started or (moment(record.start.time) if record.start else None)
            ended = moment(record.outcome.ended) if record.outcome else ended
        return moment(int(self.entry.submitted)) or job.submitted, started, ended

    def state(self) -> tuple[AppState, str]:
        """Return the job's state, and the reason for it.

        Slurm's state of the job wins over the job's own record: only Slurm knows whether a job that
        it has ended, or that has failed, starts again.
        """
        record, job = self._record, self._job
        if not job and not self.entry.record:
            return AppState.UNKNOWN, ""
        if not job and self.entry.is_announced:
            if self.entry.cancelled:
                return AppState.CANCELLED, INTERRUPTED
            return AppState.PENDING, SUBMITTING
        own, own_reason = self._state_from_record()
        is_recent = record.outcome and time.time() - record.outcome.ended < _RECORD_SECONDS
        if not job:
            if own is None or (own == AppState.PENDING and not is_recent):
                return self._state_of_lost_job()
            return own, own_reason
        if job.state in ENDING:
            # The record may take a preemption for a cancellation. Slurm's final state follows.
            is_unclear = own in (AppState.FAILED, AppState.CANCELLED) and not self.entry.cancelled
            if own is None or (is_unclear and is_recent):
                return AppState.RUNNING, "ending"
            return own, own_reason
        state, reason = _state_and_reason(job.state)
        if state == AppState.PENDING:
            requeue = ""
            if own == AppState.PENDING:
                requeue = own_reason
            elif record.start is not None:
                requeue = f"requeued after attempt {record.start.attempt + 1}"
                if own in (AppState.FAILED, AppState.CANCELLED):
                    requeue += f" ({own_reason})"
            reason = self._why_waiting(job, requeue)
        if job.state == "FAILED":
            causes = (part.state for part in job.parts[1:] if part.state in _NODE_CAUSES)
            reason = _state_and_reason(next(causes, ""))[1]
        if state in (AppState.FAILED, AppState.CANCELLED) and own in (AppState.FAILED, state):
            reason = reason or own_reason
        return state, reason

    def _why_waiting(self, job: JobInfo, requeued: str) -> str:
        if requeued and job.reason.startswith("BeginTime"):
            # After a requeue, Slurm waits for some seconds; nobody has set a time.
            job = replace(job, reason="")
        found = [super()._why_waiting(job, requeued)]
        if isinstance(job, SlurmJob) and job.expected is not None:
            when = job.expected.astimezone().isoformat(timespec="seconds")
            found.append(f"expected to start at {when}")
        return "; ".join(filter(None, found)) or "pending"

    def _state_from_record(self) -> tuple[AppState | None, str]:
        """Return the state that the job's script reported, or None if it reported none."""
        record, outcome = self._record, self._record.outcome
        if outcome is None:
            return None, ""
        if outcome.state == "SUCCEEDED":
            return AppState.SUCCEEDED, ""
        cause = outcome.cause if outcome.cause != "RUNNING" else ""
        if cause and cause not in FAILURES:
            cause = "CANCELLED"  # Slurm shows no other reason, so a user has ended the job
        if outcome.state == "REQUEUED":
            end = "was ended by Slurm" if cause else "has failed"
            end += f" ({cause})" if cause not in ("", "CANCELLED") else ""
            if record.attempts and record.attempts[-1].reason:
                end = f"ended: {record.attempts[-1].reason}"
            return AppState.PENDING, f"requeued: attempt {outcome.attempt + 1} {end}"
        if line := record.text("setup").partition("\n")[0]:
            return AppState.FAILED, f"setup failed with exit code {outcome.exit_code} at: {line}"
        if cause:
            return _state_and_reason(cause)
        if self.entry.cancelled and not outcome.cause:
            return AppState.CANCELLED, "cancelled"
        if refusal := record.refusal():
            return AppState.FAILED, refusal
        failure = self._failure
        if failure is None:
            return AppState.FAILED, f"exit code {outcome.exit_code}"
        role, k = self.entry.roles[failure.role].name, failure.replica
        end = record.describe_end(failure.role, k, failure.exit_code)
        return AppState.FAILED, f"{role}/{k} on {failure.node}: {end}"

    def _state_of_lost_job(self) -> tuple[AppState, str]:
        """Return the state of a job that left the queue and did not report its end."""
        if self.entry.cancelled:
            return AppState.CANCELLED, "cancelled"
        if self._record.start is None:
            return AppState.CANCELLED, "it left the queue before it started"
        if self._record.outcome is not None:
            return AppState.CANCELLED, "it left the queue before it started again"
        return (
            AppState.FAILED,
            "it left the queue without reporting its end: it was killed, or its first node failed",
        )

    def _set_state(
        self, status: ReplicaStatus, at: tuple[int, int], report: ReplicaRecord | None
    ) -> None:
        app = status.state = self._state
        status.reason = self._reason
        node = next(self._nodes, "")
        # While the job is pending, the file of a replica is from an earlier attempt.
        if report is None or app == AppState.PENDING:
            status.node = node
            if app == AppState.FAILED and self._is_ended_by_failure(at):
                status.state, status.reason = AppState.CANCELLED, ANOTHER_FAILED
            elif app == AppState.RUNNING:
                # The replica has not started, or its file is not visible here yet.
                status.state = AppState.PENDING
            return
        status.restarts, status.exit_code = report.restarts, report.exit_code
        status.started, status.ended = moment(report.started), moment(report.ended)
        if report.exit_code is None:
            status.reason = self._reason if is_terminal(app) else ""
        elif report.exit_code == 0:
            status.state, status.reason = AppState.SUCCEEDED, ""
        else:
            status.state = app if app == AppState.CANCELLED else AppState.FAILED
            status.reason = self._record.describe_end(*at, report.exit_code)
            if report.exit_code < 0 and self._reason:
                status.reason = f"{describe_exit(report.exit_code)} ({self._reason})"


def _state_and_reason(slurm_state: str) -> tuple[AppState, str]:
    text = FAILURES.get(slurm_state, "")
    return appstate_from_slurm_state(slurm_state), f"{slurm_state}: {text}" if text else ""


def list_item(job: JobInfo) -> ListAppResponse:
    """Return the item of the list of apps for a job that the index lacks."""
    is_ending = job.state in ENDING
    state = AppState.RUNNING if is_ending else appstate_from_slurm_state(job.state)
    app = ListAppResponse(job.job_id, state, name=job.name)
    set_times(app, job.submitted, started=job.started, ended=job.ended)
    has_failed = state == AppState.FAILED
    replicas = [ReplicaStatus(0, state, "", "", exit_code=job.exit_code)] if has_failed else []
    app.exit_code = app_exit_code(state, replicas)
    return app
