"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
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
from torchx_sched_lsf.names import app_of_job, job_name, make_app_id
from torchx_sched_lsf.names import cleanup_str as cleanup_str
from torchx_sched_lsf.options import LsfOpts as LsfOpts
from torchx_sched_lsf.options import option_problems
from torchx_sched_lsf.queries import Job, all_jobs, combined_state, jobs_of_app
from torchx_sched_lsf.queries import bjobs_msg_to_describe as bjobs_msg_to_describe
from torchx_sched_lsf.queries import bjobs_msg_to_list as bjobs_msg_to_list
from torchx_sched_lsf.queries import bjobs_msg_to_log_file as bjobs_msg_to_log_file
from torchx_sched_lsf.queries import find_rank0_host as find_rank0_host
from torchx_sched_lsf.queries import (
    find_rank0_host_from_bhosts_stdout as find_rank0_host_from_bhosts_stdout,
)
from torchx_sched_lsf.records import Entry, Index, LsfRecord
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

    Each replica is a separate job, named ``<app id>-<role>-<replica>``. Replica 0 of the first role
    starts first. When a replica has failed and has no retries left, the other jobs of the app are
    killed.

    Docker or Apptainer runs the role's image. A role without an image, or with a directory as its
    image, runs without a container. The logs are in ``jobdir`` (default: the current directory).
    The app's record, in which the replicas report how they ended, is in the same directory.

    Args:
        session_name: Name of the session.
        timeout: How long one LSF command may take, in seconds.
        patience: How long to retry while LSF is unreachable, in seconds.
        host: The machine with LSF's commands and the jobs' files; by default this machine.
    """

    resolves_secrets = True

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

        If LSF refuses a job, or if Ctrl-C interrupts the submission, the jobs submitted before are
        killed. If the client is killed, the submission completes all the same.

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
        name = dryrun_info.app.name if dryrun_info.app else request.app.name
        submit(self._lsf, request, app_id, name, self._index)
        return app_id

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the app does not exist.

        The description combines the app's record and the output of bjobs.

        Raises:
            LsfError: LSF cannot be queried, and not all replicas have recorded their end.
        """
        from torchx_sched_lsf.describe import describe, describe_by_names

        entry = self._index.get(app_id)
        if entry is not None:
            return None if entry.deleted else describe(self._lsf, self._index, entry)
        if not _is_app_id(app_id):
            return None
        return describe_by_names(app_id, jobs_of_app(self._lsf, app_id))

    def exists(self, app_id: str) -> bool:
        """Return True if the app exists; LSF is not queried for an app in the index."""
        entry = self._index.get(app_id)
        return not entry.deleted if entry is not None else self.describe(app_id) is not None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's apps.

        The list contains the apps submitted with the current ``$TORCHX_HOME``, and other apps of
        TorchX that LSF still lists.

        Raises:
            LsfError: LSF cannot be queried.
        """
        from torchx_sched_lsf.describe import describe_all, jobs_by_name, refresh

        entries = {entry.app_id: entry for entry in self._index.entries()}
        existing = [entry for entry in entries.values() if not entry.deleted]
        listed = all_jobs(self._lsf)
        for entry in existing:
            refresh(self._lsf, self._index, entry)
        descriptions = describe_all(
            self._lsf, self._index, existing, jobs_by_name(existing, listed)
        )
        apps = [
            ListAppResponse(entry.app_id, descriptions[entry.app_id].state, name=entry.name)
            for entry in existing
        ]
        others: dict[str, list[Job]] = {}
        for job in listed:
            app_id = app_of_job(job.name)
            if app_id and app_id not in entries:
                others.setdefault(app_id, []).append(job)
        for app_id, jobs in others.items():
            state = combined_state([get_job_state(job.stat, "") for job in jobs])
            apps.append(ListAppResponse(app_id, state))
        return apps

    def _cancel_existing(self, app_id: str) -> None:
        from torchx_sched_lsf.describe import find_jobs, refresh

        entry = self._index.get(app_id)
        if entry is None:
            jobs = jobs_of_app(self._lsf, app_id) if _is_app_id(app_id) else []
        elif entry.final is not None:
            return
        else:
            refresh(self._lsf, self._index, entry)
            jobs = list(find_jobs(self._lsf, entry).values())
            known = set(entry.jobs)
            jobs = [job for job in jobs if job.job_id in known]
        unfinished = [job.job_id for job in jobs if not job.has_ended]
        if entry is not None and (unfinished or not entry.complete):
            entry.cancelled = True
            self._index.put(entry)
            LsfRecord(self._host, entry).cancel()  # also stops a submission that has not ended
        if not unfinished:  # without ids, bkill would kill the user's last job
            return
        try:
            self._lsf.run("bkill", *unfinished)
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
        *,
        last: int | None = None,
        partial: bool = False,
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

        warn_if_limited_by_time("lsf", since, until)
        description = self._recent_description(app_id)
        if description is None:
            raise BackendError(f"app {app_id} does not exist")
        entry = self._index.get(app_id)
        folder, name, watch = self._log_location(app_id, entry, role_name, k)
        base = posixpath.join(folder, job_name(app_id, name, k))
        report = f"{base}.submit.out"
        return replica_log(
            self._host,
            base,
            streams,
            regex,
            follow=should_tail,
            is_running=not is_terminal(description.state),
            is_finished=lambda: self._has_ended(app_id),
            watch=watch,
            missing_hint=lambda: f"see {report}" if self._host.exists(report) else "",
            last=last,
            partial=partial,
        )

    def _log_location(
        self, app_id: str, entry: Entry | None, role_name: str, k: int
    ) -> tuple[str, str, Sequence[str]]:
        """Return the directory of the logs, the role's name in file names, and files to watch."""
        if entry is None:  # the app was submitted elsewhere
            return self._host.resolve(), cleanup_str(role_name), []
        check_replica(app_id, {role.name: len(role.jobs) for role in entry.roles}, role_name, k)
        number = [role.name for role in entry.roles].index(role_name)
        watch = LsfRecord(self._host, entry).replica_path(number, k)
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


def _is_app_id(app_id: str) -> bool:
    """Return whether an id has the form of :func:`make_app_id`, so that no other job matches."""
    return app_of_job(job_name(app_id, "role", 0)) == app_id


def _with_job_dir(cfg: Mapping[str, CfgVal]) -> Mapping[str, CfgVal]:
    """Copy the option ``jobdir`` to ``job_dir``, the name that the workspace builder reads."""
    jobdir = cfg.get("jobdir")
    return {**cfg, "job_dir": jobdir} if jobdir else cfg
