"""The scheduler ``acme``: apps as rows of the job table, which workers run."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from torchx_kit.logs.file_logs import Tail, log_lines
from torchx_kit.names.ids import make_unique
from torchx_kit.role_checks import check_replica
from torchx_kit.role_templates import RoleTemplate
from torchx_specs import AppDef, AppDryRunInfo, AppState, CfgVal, Role, StructuredOpts, macros
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.status import ReplicaStatus, RoleStatus
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs

from acme_torchx.database import acme_home
from acme_torchx.jobs import Job, JobTable, Task

#: The environment variable that names the host of replica 0.
RANK0_VARIABLE = "ACME_RANK0_HOST"

#: How long a deletion waits for the end of the processes, in seconds.
DELETE_SECONDS = 30.0


@dataclass
class AcmeOptions(StructuredOpts):
    """The options of ``torchx run -s acme -cfg``."""

    queue: str = "default"
    """Queue of the job; ``torchx queues`` lists them."""

    priority: int = 0
    """Priority of the job; jobs with a higher priority start first."""


class AcmeScheduler(Scheduler[AcmeOptions]):
    """Adds jobs to the table.

    Args:
        session_name: Name of the session; the second part of app handles.
        table: The job table.
    """

    features = SchedulerFeatures(
        times=No("the job table keeps no times"),
        logs=True,
        last=True,
        partial=True,
        since_until=No("the logs have no times"),
        streams=No("standard output and standard error are one log"),
    )

    def __init__(self, session_name: str, table: JobTable) -> None:
        super().__init__("acme", session_name)
        self.table = table

    def _submit_dryrun(self, app: AppDef, cfg: AcmeOptions) -> AppDryRunInfo[Job]:
        job_id = make_unique(re.sub(r"[^A-Za-z0-9]+", "-", app.name)[:40].strip("-") or "app")
        tasks = []
        for role in app.roles:
            template = RoleTemplate(role)
            for index in range(role.num_replicas):
                values = macros.Values("", job_id, str(index), rank0_env=RANK0_VARIABLE)
                env = {RANK0_VARIABLE: "localhost", **template.env(values)}
                argv = [role.entrypoint, *template.args(values)]
                tasks.append(Task(role.name, index, argv, env))
        cpus = sum(max(role.resource.cpu, 0) * role.num_replicas for role in app.roles)
        retries = max(role.max_retries for role in app.roles)
        job = Job(job_id, app.name, cfg.queue, cfg.priority, cpus, retries, tasks)
        return AppDryRunInfo(job, lambda request: json.dumps(asdict(request), indent=2))

    def schedule(self, dryrun_info: AppDryRunInfo[Job]) -> str:
        """Add the job of a dry run to the table, and return its id."""
        with self._backend_errors("submit the job"):
            self.table.submit(dryrun_info.request)
        return dryrun_info.request.id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the state of an app and of its replicas, or None if the app does not exist."""
        job = self.find(app_id)
        if job is None:
            return None
        roles: dict[str, Role] = {}
        statuses: dict[str, RoleStatus] = {}
        for number, task in enumerate(job.tasks):
            program, *args = task.argv
            role = roles.setdefault(task.role, Role(task.role, "", entrypoint=program, args=args))
            role.num_replicas = task.index + 1
            code = job.exit_codes[number] if job.exit_codes else None
            state = AppState.SUCCEEDED if code == 0 else AppState[job.state]
            replica = ReplicaStatus(task.index, state, task.role, "", exit_code=code)
            statuses.setdefault(task.role, RoleStatus(task.role, [])).replicas.append(replica)
        return DescribeAppResponse(
            app_id,
            AppState[job.state],
            num_restarts=job.restarts,
            msg=job.message,
            roles_statuses=list(statuses.values()),
            roles=list(roles.values()),
        )

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return all apps in the table."""
        with self._backend_errors("list the jobs"):
            jobs = self.table.jobs()
        return [ListAppResponse(job.id, AppState[job.state], name=job.name) for job in jobs]

    def _cancel_existing(self, app_id: str) -> None:
        with self._backend_errors(f"cancel {app_id}"):
            self.table.cancel(app_id)

    def _delete_existing(self, app_id: str) -> None:
        self._cancel_existing(app_id)
        deadline = time.monotonic() + DELETE_SECONDS
        while not self.has_ended(app_id):
            if time.monotonic() > deadline:
                raise BackendError(
                    f"acme: {app_id} was cancelled, and has not ended after"
                    f" {DELETE_SECONDS:.0f} seconds; delete it later"
                )
            time.sleep(0.1)
        with self._backend_errors(f"delete {app_id}"):
            self.table.delete(app_id)

    @property
    def app_logs(self) -> AcmeLogs:
        """Reads the logs of apps."""
        return AcmeLogs(self)

    def has_ended(self, app_id: str) -> bool:
        """Return True if a job has ended, or does not exist."""
        job = self.find(app_id)
        return job is None or job.has_ended

    def find(self, app_id: str) -> Job | None:
        """Return a job, or None if it does not exist."""
        with self._backend_errors(f"find {app_id}"):
            return self.table.find(app_id)

    @contextmanager
    def _backend_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as e:
            raise BackendError(f"acme: cannot {action} in {self.table.path}: {e}") from e


class AcmeLogs(Logs[AcmeScheduler]):
    """Reads the log files of jobs."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica; see ``Logs.read``."""
        if query.since is not None or query.until is not None:
            raise RequestError("since, until: the logs have no times; leave these options out")
        if query.streams not in (None, Stream.COMBINED):
            raise RequestError(f"{query.streams} is not available; both streams are one log")
        job = self.scheduler.find(app_id)
        if job is None:
            raise RequestError(f"app '{app_id}' does not exist")
        check_replica(app_id, Counter(task.role for task in job.tasks), role, k)
        number = [(task.role, task.index) for task in job.tasks].index((role, k))
        tail = None
        if query.should_tail:
            tail = Tail(
                lambda: self.scheduler.has_ended(app_id),
                check_every=0.2,
                partial=query.partial,
                closing=closing_of(self.scheduler),
            )
        path = self.scheduler.table.log_file(job, number)
        return log_lines(path, query.regex, tail=tail, last=query.last)


def create_scheduler(session_name: str, **params: object) -> AcmeScheduler:
    """Return a new scheduler for Acme's job table."""
    return AcmeScheduler(session_name, JobTable(acme_home()))
