"""The scheduler, and the names that older code imports from here."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_lsf import records
from torchx_sched_lsf.bjobs import Job, combined, ending_of, jobs_by_id, jobs_of_project
from torchx_sched_lsf.bjobs import bjobs_msg_to_describe as bjobs_msg_to_describe
from torchx_sched_lsf.bjobs import bjobs_msg_to_list as bjobs_msg_to_list
from torchx_sched_lsf.bjobs import bjobs_msg_to_log_file as bjobs_msg_to_log_file
from torchx_sched_lsf.bjobs import find_rank0_host as find_rank0_host
from torchx_sched_lsf.bjobs import (
    find_rank0_host_from_bhosts_stdout as find_rank0_host_from_bhosts_stdout,
)
from torchx_sched_lsf.client import Lsf as Lsf
from torchx_sched_lsf.client import LsfError as LsfError
from torchx_sched_lsf.client import UnreachableError as UnreachableError
from torchx_sched_lsf.names import cleanup_str as cleanup_str
from torchx_sched_lsf.names import job_name, make_app_id, role_names, split_job_name
from torchx_sched_lsf.options import LsfOpts as LsfOpts
from torchx_sched_lsf.options import problems_of
from torchx_sched_lsf.records import Entry, Index, RoleEntry
from torchx_sched_lsf.request import LsfBsub as LsfBsub
from torchx_sched_lsf.request import get_bsub as get_bsub
from torchx_sched_lsf.request import get_command as get_command
from torchx_sched_lsf.request import get_docker_command as get_docker_command
from torchx_sched_lsf.request import get_submit_script as get_submit_script
from torchx_sched_lsf.states import JOB_STATE as JOB_STATE
from torchx_sched_lsf.states import get_job_state as get_job_state
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState, ReplicaStatus, RoleStatus, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream

if TYPE_CHECKING:
    from datetime import datetime

# Followers of one app's logs share what was found out so long ago, at most.
_FRESH_SECONDS = 2.0
_SUBMIT_SECONDS = 600.0


class LsfScheduler(BuilderWorkspaceMixin, Scheduler[LsfOpts]):
    """Runs apps as jobs of LSF, by its commands.

    Every replica is a job of its own, ``<app id>-<role>-<replica>`` in the project ``<app id>``;
    the others are started after replica 0 of the first role, and when one fails for good the
    others are ended. Images are run by Docker or Apptainer; a role without one, or with a folder,
    runs as it is. Logs are in ``jobdir`` or the current folder, and beside them the replicas note
    how they end.

    Args:
        session_name: who submits
        timeout: seconds that one command of LSF may take
        patience: seconds to try again for while nobody answers
    """

    def __init__(self, session_name: str, *, timeout: float = 30.0, patience: float = 60.0) -> None:
        super().__init__("lsf", session_name)
        self._lsf = Lsf(timeout, patience)
        self._index = Index()
        self._seen: dict[str, tuple[float, DescribeAppResponse | None]] = {}
        self._asking = threading.Lock()

    # -- submitting

    def _validate(self, app: AppDef, scheduler: str, cfg: LsfOpts | None = None) -> None:
        """A role may go without a resource: it gets what the queue gives by default."""

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Plans the workspace; the folder it is copied to is ``jobdir``."""
        super().caching_build_workspace_and_update_role(role, _with_job_dir(cfg), build_cache)

    def build_pending(self, job: Any, cfg: Mapping[str, CfgVal] | None = None) -> dict[str, str]:
        """Builds what a dry run only planned."""
        if cfg is None and isinstance(job, AppDryRunInfo):
            cfg = job.cfg
        return super().build_pending(job, _with_job_dir(cfg or {}))

    def _submit_dryrun(self, app: AppDef, cfg: LsfOpts) -> AppDryRunInfo[LsfBsub]:
        problems = list(problems_of(cfg))
        for role in app.roles:
            if not role.entrypoint or role.entrypoint == MISSING:
                problems.append(
                    f"role '{role.name}': no entrypoint; set Role.entrypoint to the program to run"
                )
            if role.num_replicas < 1:
                problems.append(f"role '{role.name}' has {role.num_replicas} replicas")
        if not app.roles:
            problems.append(f"app '{app.name}' has no roles")
        if len({role.name for role in app.roles}) < len(app.roles):
            problems.append("two roles have the same name")
        if problems:
            raise RequestError(problems)
        jobdir = cfg.jobdir or cfg.get("job_dir")
        folder = os.path.abspath(os.path.expanduser(str(jobdir))) if jobdir else None
        request = LsfBsub(folder, make_app_id(app.name), app, cfg)
        request.materialize()  # whatever is wrong with a word shows now
        return AppDryRunInfo(request, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[LsfBsub]) -> str:
        """Builds what the workspace still needs, and submits every replica, or none.

        Raises:
            LsfError: LSF refuses a job, or cannot be reached
            RequestError: the job's folder cannot be written to
        """
        self.build_pending(dryrun_info)
        request = dryrun_info.request
        app_id = request.app_id
        if self._index.get(app_id) is not None:  # submitted already: this is another one
            app_id = make_app_id(request.app.name)
            request = LsfBsub(request.jobdir, app_id, request.app, request.cfg, request.cmd)
        folder = request.jobdir or os.getcwd()
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as e:
            raise RequestError(f"cannot make jobdir {folder}: {e.strerror or e}") from None
        path = records.make_record(folder, app_id, request.materialize())
        try:
            said = self._lsf.run(*request.cmd, path, timeout=_SUBMIT_SECONDS)
        except UnreachableError as e:
            self._end_project(app_id)
            raise UnreachableError(
                f"{e}; should LSF have taken jobs all the same, bjobs -P {app_id} shows them"
            ) from None
        except LsfError as e:
            records.remove_record(records.record_of(folder, app_id))
            raise LsfError(_bsub_words(str(e))) from None
        names = role_names(role.name for role in request.app.roles)
        roles = [RoleEntry(role.name, names[role.name], []) for role in request.app.roles]
        for line in said.split("\n"):
            words = line.split()
            if words[:1] == ["submitted"]:
                roles[int(words[1])].jobs.append(words[3])
        name = dryrun_info.app.name if dryrun_info.app else request.app.name
        self._index.put(Entry(app_id, name, folder, submitted=time.time(), roles=roles))
        return app_id

    def _end_project(self, app_id: str) -> None:
        """Ends what was submitted of an app; if that fails too, the error tells of it."""
        try:
            jobs = [job.job_id for job in jobs_of_project(self._lsf, app_id)]
            if jobs:
                self._lsf.run("bkill", *jobs)
        except LsfError:
            pass

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what is known of an app: from its replicas themselves, and from bjobs.

        Raises:
            LsfError: LSF cannot be asked, and the replicas have not all said how they ended
        """
        entry = self._index.get(app_id)
        if entry is None:
            if cleanup_str(app_id) != app_id or not app_id:
                return None
            jobs = [job for job in jobs_of_project(self._lsf, app_id) if job.project == app_id]
            return _describe_jobs(app_id, jobs)
        if entry.deleted:
            return None
        said = {
            (n, k): records.replica(entry.record, n, k)
            for n, role in enumerate(entry.roles)
            for k in range(len(role.jobs))
        }
        known: dict[str, Job] = {}
        unended = [
            at for at, replica in said.items() if replica is None or replica.exit_code is None
        ]
        if unended:
            known = jobs_by_id(self._lsf, entry.jobs)
            # What a replica says last is there before its job has ended, so it is read after.
            said.update({at: records.replica(entry.record, *at) for at in unended})
        roles = []
        for n, role in enumerate(entry.roles):
            replicas = [
                self._replica(entry, role.name, k, known.get(job), said[n, k])
                for k, job in enumerate(role.jobs)
            ]
            for status in replicas:
                status.structured_error_msg = _error(entry, n, status)
            roles.append(RoleStatus(role.name, replicas))
        return _describe(app_id, entry, roles)

    def _replica(
        self,
        entry: Entry,
        role: str,
        k: int,
        job: Job | None,
        said: records.ReplicaRecord | None,
    ) -> ReplicaStatus:
        status = ReplicaStatus(k, AppState.PENDING, role, "")
        if said is not None:
            status.hostname = status.hostaddr = status.node = said.host
            status.restarts = said.restarts
        elif job is not None and job.host:
            status.hostname = status.hostaddr = status.node = job.host
        if said is not None and said.exit_code is not None:
            code = said.exit_code
            status.exit_code = 128 - code if 128 < code < 193 else code
            status.state = AppState.SUCCEEDED if code == 0 else AppState.FAILED
            if code:
                signal = status.exit_code < 0
                status.reason = (
                    f"killed by signal {code - 128}" if signal else f"exited with {code}"
                )
                if signal and entry.cancelled:
                    status.state = AppState.CANCELLED
                elif signal and not os.path.exists(os.path.join(entry.record, "failed")):
                    self._add_reason(status, entry.roles, job)
            return status
        if job is None:
            # LSF has forgotten it
            status.state = AppState.CANCELLED if entry.cancelled or not said else AppState.FAILED
            status.reason = (
                "cancelled"
                if entry.cancelled
                else "it has left the queue and told of no end: killed, or its host failed"
                if said
                else "it has left the queue and was never started"
            )
            return status
        status.state = get_job_state(job.stat, "")
        if (is_terminal(status.state) and status.state != AppState.SUCCEEDED) or job.stat == "PEND":
            self._add_reason(status, entry.roles, job)
        if status.state == AppState.FAILED and (
            entry.cancelled or (said is None and not _failed(entry))
        ):
            status.state = AppState.CANCELLED if entry.cancelled else status.state
        return status

    def _add_reason(self, status: ReplicaStatus, roles: list[RoleEntry], job: Job | None) -> None:
        """Adds what the long form of bjobs says of a job that waits or was ended."""
        job_id = (
            job.job_id if job else next(r.jobs[status.id] for r in roles if r.name == status.role)
        )
        reason, code, killed = ending_of(self._lsf, job_id)
        status.reason = "; ".join(filter(None, (status.reason, reason)))
        if status.exit_code is None and code is not None:
            status.exit_code = 128 - code if 128 < code < 193 else code
        if killed or (status.state == AppState.FAILED and code == 130):
            status.state = AppState.CANCELLED

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns this user's apps: those submitted from this home, and those whose jobs LSF knows.

        Raises:
            LsfError: LSF cannot be asked
        """
        apps = {}
        entries = {entry.app_id: entry for entry in self._index.entries()}
        for entry in entries.values():
            if entry.deleted:
                continue
            found = self.describe(entry.app_id)
            if found is not None:
                apps[entry.app_id] = ListAppResponse(entry.app_id, found.state, name=entry.name)
        projects: dict[str, list[Job]] = {}
        for job in jobs_of_project(self._lsf):
            if job.project not in entries and split_job_name(job.project, job.name):
                projects.setdefault(job.project, []).append(job)
        for project, jobs in projects.items():
            state = combined([get_job_state(job.stat, "") for job in jobs])
            apps[project] = ListAppResponse(project, state)
        return list(apps.values())

    def _cancel_existing(self, app_id: str) -> None:
        found = self.describe(app_id)
        if found is None or is_terminal(found.state):
            return
        entry = self._index.get(app_id)
        if entry is not None:
            entry.cancelled = True
            self._index.put(entry)
            jobs = entry.jobs
        else:
            jobs = [job.job_id for job in jobs_of_project(self._lsf, app_id)]
        try:
            self._lsf.run("bkill", *jobs)
        except UnreachableError:
            raise
        except LsfError as e:
            # of several jobs some may have ended by themselves
            if "already finished" not in str(e).lower() and "not found" not in str(e).lower():
                raise

    def _delete_existing(self, app_id: str) -> None:
        """Cancels an app and forgets it; its logs stay."""
        self._cancel_existing(app_id)
        entry = self._index.get(app_id)
        if entry is not None:
            entry.deleted = True
            self._index.put(entry)

    # -- logs

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Returns the lines of one replica, by default those of its standard output and error.

        LSF keeps no times: ``since`` and ``until`` are ignored, with a warning. Both streams are
        two files; of what is there already, standard output comes first.

        Raises:
            BackendError: there is no such app, or no such log although the app has ended
        """
        from torchx_kit.logs.file_logs import Tail, follow_files, read_files, stream_files
        from torchx_sched_lsf.logs import missing

        if since is not None or until is not None:
            import warnings

            warnings.warn(
                "lsf keeps no times of log lines: since and until are ignored", stacklevel=2
            )
        found = self._described(app_id)
        if found is None:
            raise BackendError(f"no app {app_id}")
        entry = self._index.get(app_id)
        folder, name, number = os.getcwd(), cleanup_str(role_name), 0
        if entry is not None:
            folder = entry.folder
            for n, role in enumerate(entry.roles):
                if role.name == role_name:
                    name, number = role.job_name, n
        base = os.path.join(folder, job_name(app_id, name, k))
        paths = stream_files(base, streams or Stream.COMBINED)
        if should_tail and not is_terminal(found.state):
            watch = [records.replica_file(entry.record, number, k)] if entry else []
            tail = Tail(lambda: self._has_ended(app_id), watch)
            return follow_files(paths, regex, tail)
        there = [path for path in paths if os.path.exists(path)]
        if not there and is_terminal(found.state):
            raise missing(paths, f"{base}.submit.out")
        return read_files(there, regex)

    def _has_ended(self, app_id: str) -> bool:
        found = self._described(app_id)
        return found is None or is_terminal(found.state)

    def _described(self, app_id: str) -> DescribeAppResponse | None:
        with self._asking:  # who comes later finds what the first has asked
            when, found = self._seen.get(app_id, (None, None))
            now = time.monotonic()
            if when is None or now - when >= _FRESH_SECONDS:
                found = self.describe(app_id)
                self._seen[app_id] = (now, found)
            return found


def create_scheduler(session_name: str, **kwargs: Any) -> LsfScheduler:
    """Returns the scheduler; keyword arguments for others are ignored."""
    own = {key: kwargs[key] for key in ("timeout", "patience") if key in kwargs}
    return LsfScheduler(session_name, **own)


def _with_job_dir(cfg: Mapping[str, CfgVal]) -> Mapping[str, CfgVal]:
    """Returns the options with ``jobdir`` under the name by which the builder knows it."""
    jobdir = cfg.get("jobdir")
    return {**cfg, "job_dir": jobdir} if jobdir else cfg


def _bsub_words(text: str) -> str:
    """Returns what was said, as said by bsub: the script only hands it on."""
    return "bsub: " + text.removeprefix("/bin/bash: ")


def _failed(entry: Entry) -> bool:
    return os.path.exists(os.path.join(entry.record, "failed"))


def _error(entry: Entry, role: int, status: ReplicaStatus) -> str:
    if status.state != AppState.FAILED:
        return NONE
    try:
        path = os.path.join(entry.record, f"error-{role}-{status.id}.json")
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip() or NONE
    except OSError:
        return NONE


def _describe(app_id: str, entry: Entry, roles: list[RoleStatus]) -> DescribeAppResponse:
    replicas = [replica for role in roles for replica in role.replicas]
    state = combined([replica.state for replica in replicas])
    if state == AppState.FAILED and entry.cancelled:
        state = AppState.CANCELLED
    first = _first_failure(entry)
    reasons = [f"{r.role}/{r.id}: {r.reason}" for r in replicas if r.reason and r.state == state]
    message = first if first and state == AppState.FAILED else next(iter(reasons), NONE)
    errors = (r.structured_error_msg for r in replicas)
    return DescribeAppResponse(
        app_id=app_id,
        state=state,
        num_restarts=0,
        msg=message,
        structured_error_msg=next((error for error in errors if error != NONE), NONE),
        roles_statuses=roles,
        roles=[Role(role.role, image="", num_replicas=len(role.replicas)) for role in roles],
    )


def _first_failure(entry: Entry) -> str:
    try:
        with open(os.path.join(entry.record, "failed"), encoding="utf-8") as file:
            role, k, host, code = file.read().split()
        return f"{entry.roles[int(role)].name}/{k} on {host} exited with {code}"
    except (OSError, ValueError, IndexError):
        return ""


def _describe_jobs(app_id: str, jobs: list[Job]) -> DescribeAppResponse | None:
    """Describes an app that was submitted elsewhere, by the names of its jobs."""
    if jobs and not any(job.name for job in jobs):
        state = combined([get_job_state(job.stat, "") for job in jobs])
        return DescribeAppResponse(app_id=app_id, state=state)
    lines = [f"{job.project} {job.name} {job.stat} -" for job in jobs]
    found = bjobs_msg_to_describe(app_id, "\n".join(lines))
    if found is not None:
        found.msg = NONE
    return found
