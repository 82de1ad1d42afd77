"""The state of an app, from the app's record and from bjobs."""

from __future__ import annotations

from torchx_kit.jobs.records import JobRecord, ReplicaRecord
from torchx_kit.signals import describe_exit, process_exit_code
from torchx_sched_lsf.client import Lsf
from torchx_sched_lsf.queries import (
    Job,
    bjobs_msg_to_describe,
    combined_state,
    explain_job,
    jobs_by_id,
)
from torchx_sched_lsf.records import Entry
from torchx_sched_lsf.states import get_job_state
from torchx_specs.model.app import Role
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse


def describe(lsf: Lsf, entry: Entry) -> DescribeAppResponse:
    """Return the description of an app in the index.

    Args:
        lsf: The client.
        entry: The app's index entry.

    Raises:
        LsfError: LSF cannot be queried, and not all replicas have recorded their end.
    """
    return _AppDescription(lsf, entry).describe()


def describe_project(app_id: str, jobs: list[Job]) -> DescribeAppResponse | None:
    """Return the description of an app that is not in the index.

    Roles and replicas come from the names of the jobs. Without a job, return None.

    Args:
        app_id: The app's id.
        jobs: The jobs of the LSF project ``app_id``.
    """
    if jobs and not any(job.name for job in jobs):
        state = combined_state([get_job_state(job.stat, "") for job in jobs])
        return DescribeAppResponse(app_id=app_id, state=state)
    lines = [f"{job.project} {job.name} {job.stat} -" for job in jobs]
    description = bjobs_msg_to_describe(app_id, "\n".join(lines))
    if description is not None:
        description.msg = NONE
    return description


class _AppDescription:
    """A snapshot of an app: the reports of the replicas, and the jobs in LSF."""

    def __init__(self, lsf: Lsf, entry: Entry) -> None:
        self._lsf = lsf
        self._entry = entry
        self._record = JobRecord(lsf.host, entry.record)
        replicas = [(n, k) for n, role in enumerate(entry.roles) for k in range(len(role.jobs))]
        self._reports = {at: self._record.replica(*at) for at in replicas}
        self._jobs: dict[str, Job] = {}
        running = [
            at for at, report in self._reports.items() if report is None or report.exit_code is None
        ]
        if running:
            self._jobs = jobs_by_id(lsf, entry.jobs)
            # Read these reports again: a job that ended since the first read has reported its end.
            self._reports.update({at: self._record.replica(*at) for at in running})
        self._first_failure = self._record.first_failure()

    def describe(self) -> DescribeAppResponse:
        entry = self._entry
        statuses = []
        for n, role in enumerate(entry.roles):
            replicas = [self._replica_status(n, k) for k in range(len(role.jobs))]
            statuses.append(RoleStatus(role.name, replicas))
        replicas = [replica for role in statuses for replica in role.replicas]
        state = combined_state([replica.state for replica in replicas])
        if state == AppState.FAILED and entry.cancelled:
            state = AppState.CANCELLED
        errors = (r.structured_error_msg for r in replicas)
        return DescribeAppResponse(
            app_id=entry.app_id,
            state=state,
            num_restarts=0,
            msg=self._message(state, replicas),
            structured_error_msg=next((error for error in errors if error != NONE), NONE),
            roles_statuses=statuses,
            roles=[Role(s.role, image="", num_replicas=len(s.replicas)) for s in statuses],
        )

    def _message(self, state: AppState, replicas: list[ReplicaStatus]) -> str:
        if self._first_failure is not None and state == AppState.FAILED:
            return self._first_failure.describe([role.name for role in self._entry.roles])
        reasons = (
            f"{r.role}/{r.id}: {r.reason}" for r in replicas if r.reason and r.state == state
        )
        return next(reasons, NONE)

    def _replica_status(self, role: int, k: int) -> ReplicaStatus:
        entry = self._entry.roles[role]
        status = ReplicaStatus(k, AppState.PENDING, entry.name, "")
        report = self._reports[role, k]
        job = self._jobs.get(entry.jobs[k])
        node = report.node if report is not None else job.host if job is not None else ""
        if node:
            status.hostname = status.hostaddr = status.node = node
        if report is not None:
            status.restarts = report.restarts
        if report is not None and report.exit_code is not None:
            self._set_recorded_end(status, report.exit_code, entry.jobs[k])
        elif job is not None:
            self._set_state_of_job(status, job)
        else:
            self._set_state_of_lost_job(status, report)
        if status.state == AppState.FAILED:
            status.structured_error_msg = self._record.error(role, k) or NONE
        return status

    def _set_recorded_end(self, status: ReplicaStatus, exit_code: int, job_id: str) -> None:
        status.exit_code = exit_code
        status.state = AppState.SUCCEEDED if exit_code == 0 else AppState.FAILED
        status.reason = describe_exit(exit_code)
        if exit_code < 0 and self._entry.cancelled:
            status.state = AppState.CANCELLED
        elif exit_code < 0 and self._first_failure is None:
            self._add_reason(status, job_id)

    def _set_state_of_job(self, status: ReplicaStatus, job: Job) -> None:
        status.state = get_job_state(job.stat, "")
        has_failed = is_terminal(status.state) and status.state != AppState.SUCCEEDED
        if has_failed or job.stat == "PEND":
            self._add_reason(status, job.job_id)
        if status.state == AppState.FAILED and self._entry.cancelled:
            status.state = AppState.CANCELLED

    def _set_state_of_lost_job(self, status: ReplicaStatus, report: ReplicaRecord | None) -> None:
        if self._entry.cancelled:
            status.state, status.reason = AppState.CANCELLED, "cancelled"
        elif report is None:
            status.state = AppState.CANCELLED
            status.reason = "it left the queue before it started"
        else:
            status.state = AppState.FAILED
            status.reason = (
                "it left the queue without reporting its end: it was killed, or its host failed"
            )

    def _add_reason(self, status: ReplicaStatus, job_id: str) -> None:
        """Add LSF's reason and exit code from the long form of bjobs; a killed job is cancelled."""
        reason, exit_code, was_killed = explain_job(self._lsf, job_id)
        status.reason = "; ".join(filter(None, (status.reason, reason)))
        if status.exit_code is None and exit_code is not None:
            status.exit_code = process_exit_code(exit_code)
        if was_killed or (status.state == AppState.FAILED and exit_code == 130):
            status.state = AppState.CANCELLED
