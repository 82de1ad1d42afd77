"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.jobs.records import JobRecord
from torchx_kit.role_checks import (
    app_problems,
    check_replica,
    entrypoint_problems,
    replica_count_problems,
)
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_lsf.client import Lsf as Lsf
from torchx_sched_lsf.client import LsfError as LsfError
from torchx_sched_lsf.client import UnreachableError as UnreachableError
from torchx_sched_lsf.names import cleanup_str as cleanup_str
from torchx_sched_lsf.names import job_name, make_app_id, split_job_name
from torchx_sched_lsf.options import LsfOpts as LsfOpts
from torchx_sched_lsf.options import option_problems
from torchx_sched_lsf.queries import Job, combined_state, jobs_of_project
from torchx_sched_lsf.queries import bjobs_msg_to_describe as bjobs_msg_to_describe
from torchx_sched_lsf.queries import bjobs_msg_to_list as bjobs_msg_to_list
from torchx_sched_lsf.queries import bjobs_msg_to_log_file as bjobs_msg_to_log_file
from torchx_sched_lsf.queries import find_rank0_host as find_rank0_host
from torchx_sched_lsf.queries import (
    find_rank0_host_from_bhosts_stdout as find_rank0_host_from_bhosts_stdout,
)
from torchx_sched_lsf.records import Entry, Index
from torchx_sched_lsf.request import LsfBsub as LsfBsub
from torchx_sched_lsf.request import get_bsub as get_bsub
from torchx_sched_lsf.request import get_command as get_command
from torchx_sched_lsf.request import get_docker_command as get_docker_command
from torchx_sched_lsf.request import get_submit_script as get_submit_script
from torchx_sched_lsf.states import JOB_STATE as JOB_STATE
from torchx_sched_lsf.states import get_job_state as get_job_state
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream

if TYPE_CHECKING:
    from datetime import datetime

# Maximum age of a description that the followers of an app's logs share.
_MAX_AGE_SECONDS = 2.0


class LsfScheduler(BuilderWorkspaceMixin, Scheduler[LsfOpts]):
    """A scheduler that runs apps as LSF jobs, with LSF's own commands.

    Each replica is a separate job, named ``<app id>-<role>-<replica>``, in the project
    ``<app id>``. Replica 0 of the first role starts first. When a replica has failed and has no
    retries left, the other jobs of the app are killed.

    Docker or Apptainer runs the role's image. A role without an image, or with a directory as its
    image, runs without a container. The logs are in ``jobdir`` (default: the current directory).
    The app's record, in which the replicas report how they ended, is in the same directory.

    Args:
        session_name: Name of the session.
        timeout: How long one LSF command may take, in seconds.
        patience: How long to retry while LSF is unreachable, in seconds.
        host: The machine with LSF's commands and the jobs' files; by default this machine.
    """

    def __init__(
        self,
        session_name: str,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        host: Host | None = None,
    ) -> None:
        super().__init__("lsf", session_name)
        self._lsf = Lsf(host, timeout, patience)
        self._host = self._lsf.host
        self._index = Index()
        self._descriptions: CoalescingCache[DescribeAppResponse] = CoalescingCache()

    # -- submission

    def _validate(self, app: AppDef, scheduler: str, cfg: LsfOpts | None = None) -> None:
        """Accept roles without a resource: they get the queue's defaults."""

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Plan the copy of the workspace to ``jobdir``."""
        super().caching_build_workspace_and_update_role(role, _with_job_dir(cfg), build_cache)

    def build_pending(self, job: Any, cfg: Mapping[str, CfgVal] | None = None) -> dict[str, str]:
        """Build the workspaces that a dry run planned."""
        if cfg is None and isinstance(job, AppDryRunInfo):
            cfg = job.cfg
        return super().build_pending(job, _with_job_dir(cfg or {}))

    def _submit_dryrun(self, app: AppDef, cfg: LsfOpts) -> AppDryRunInfo[LsfBsub]:
        problems = [*option_problems(cfg), *app_problems(app)]
        for role in app.roles:
            role_problems = chain(entrypoint_problems(role), replica_count_problems(role))
            problems += [f"role '{role.name}': {problem}" for problem in role_problems]
        if problems:
            raise RequestError(problems)
        jobdir = cfg.jobdir or cfg.get("job_dir")
        folder = self._host.resolve(str(jobdir)) if jobdir else None
        request = LsfBsub(folder, make_app_id(app.name), app, cfg)
        request.materialize()  # report invalid arguments in the dry run
        return AppDryRunInfo(request, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[LsfBsub]) -> str:
        """Build the workspaces that the dry run planned, and submit a job for each replica.

        If LSF refuses a job, the jobs submitted before it are killed.

        Raises:
            LsfError: LSF refuses a job, or is unreachable.
            RequestError: The app's directory is not writable.
        """
        from torchx_sched_lsf.submit import submit

        self.build_pending(dryrun_info)
        request = dryrun_info.request
        app_id = request.app_id
        if self._index.get(app_id) is not None:  # a second submission needs a new id
            app_id = make_app_id(request.app.name)
        entry = submit(self._lsf, request, app_id)
        if dryrun_info.app:
            entry.name = dryrun_info.app.name
        self._index.put(entry)
        return app_id

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the app does not exist.

        The description combines the app's record and the output of bjobs.

        Raises:
            LsfError: LSF cannot be queried, and not all replicas have recorded their end.
        """
        from torchx_sched_lsf.describe import describe, describe_project

        entry = self._index.get(app_id)
        if entry is not None:
            return None if entry.deleted else describe(self._lsf, entry)
        if cleanup_str(app_id) != app_id or not app_id:
            return None
        jobs = [job for job in jobs_of_project(self._lsf, app_id) if job.project == app_id]
        return describe_project(app_id, jobs)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's apps.

        The list contains the apps submitted with the current ``$TORCHX_HOME``, and other apps of
        TorchX that LSF still lists.

        Raises:
            LsfError: LSF cannot be queried.
        """
        apps = {}
        entries = {entry.app_id: entry for entry in self._index.entries()}
        for entry in entries.values():
            description = self.describe(entry.app_id)
            if description is not None:
                apps[entry.app_id] = ListAppResponse(
                    entry.app_id, description.state, name=entry.name
                )
        projects: dict[str, list[Job]] = {}
        for job in jobs_of_project(self._lsf):
            if job.project not in entries and split_job_name(job.project, job.name):
                projects.setdefault(job.project, []).append(job)
        for project, jobs in projects.items():
            state = combined_state([get_job_state(job.stat, "") for job in jobs])
            apps[project] = ListAppResponse(project, state)
        return list(apps.values())

    def _cancel_existing(self, app_id: str) -> None:
        description = self.describe(app_id)
        if description is None or is_terminal(description.state):
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
            # bkill also fails if some of the jobs have already ended
            if "already finished" not in str(e).lower() and "not found" not in str(e).lower():
                raise

    def _delete_existing(self, app_id: str) -> None:
        """Cancel an app and hide it from lists, but keep its logs."""
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
        """Return the log lines of one replica, by default of both streams.

        ``since`` and ``until`` are ignored with a warning, because log lines have no timestamps.
        Standard output and standard error are separate files. Of the lines that already exist, all
        lines of standard output come first.

        Raises:
            BackendError: The app does not exist, or the app has ended and the log file is missing.
            UnknownReplicaError: The app has no such role or replica.
        """
        from torchx_kit.jobs.logs import replica_log, warn_if_limited_by_time
        from torchx_sched_lsf.logs import report_hint

        warn_if_limited_by_time("lsf", since, until)
        description = self._recent_description(app_id)
        if description is None:
            raise BackendError(f"app {app_id} does not exist")
        entry = self._index.get(app_id)
        folder, name, watch = self._log_location(app_id, entry, role_name, k)
        base = posixpath.join(folder, job_name(app_id, name, k))
        return replica_log(
            self._host,
            base,
            streams,
            regex,
            follow=should_tail,
            is_running=not is_terminal(description.state),
            is_finished=lambda: self._has_ended(app_id),
            watch=watch,
            missing_hint=lambda: report_hint(self._host, f"{base}.submit.out"),
        )

    def _log_location(
        self, app_id: str, entry: Entry | None, role_name: str, k: int
    ) -> tuple[str, str, Sequence[str]]:
        """Return the directory of the logs, the role's name in file names, and files to watch."""
        if entry is None:  # the app was submitted elsewhere
            return self._host.resolve(), cleanup_str(role_name), []
        check_replica(app_id, {role.name: len(role.jobs) for role in entry.roles}, role_name, k)
        number = [role.name for role in entry.roles].index(role_name)
        watch = JobRecord(self._host, entry.record).replica_path(number, k)
        return entry.folder, entry.roles[number].job_name, [watch]

    def _has_ended(self, app_id: str) -> bool:
        description = self._recent_description(app_id)
        return description is None or is_terminal(description.state)

    def _recent_description(self, app_id: str) -> DescribeAppResponse | None:
        return self._descriptions.get(app_id, lambda _: self.describe(app_id), _MAX_AGE_SECONDS)


def create_scheduler(session_name: str, **kwargs: Any) -> LsfScheduler:
    """Return the scheduler.

    Args:
        session_name: Name of the session.
        kwargs: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
    """
    own = {key: kwargs[key] for key in ("timeout", "patience", "host") if key in kwargs}
    return LsfScheduler(session_name, **own)


def _with_job_dir(cfg: Mapping[str, CfgVal]) -> Mapping[str, CfgVal]:
    """Copy the option ``jobdir`` to ``job_dir``, the name that the workspace builder reads."""
    jobdir = cfg.get("jobdir")
    return {**cfg, "job_dir": jobdir} if jobdir else cfg
