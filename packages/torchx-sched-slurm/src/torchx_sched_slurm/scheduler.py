"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.local import LocalHost
from torchx_kit.names.limits import BATCH_JOB, fit_name, fit_names
from torchx_kit.role_checks import (
    app_problems,
    check_replica,
    entrypoint_problems,
    replica_count_problems,
)
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_slurm.client import RefusedError as RefusedError
from torchx_sched_slurm.client import Slurm as Slurm
from torchx_sched_slurm.client import SlurmError as SlurmError
from torchx_sched_slurm.client import UnreachableError as UnreachableError
from torchx_sched_slurm.job_dirs import SLURM_JOB_DIRS as SLURM_JOB_DIRS
from torchx_sched_slurm.job_dirs import JobDirBuilder, image_and_copy, is_snapshot
from torchx_sched_slurm.job_dirs import _get_job_dirs as _get_job_dirs
from torchx_sched_slurm.job_dirs import _save_job_dir as _save_job_dir
from torchx_sched_slurm.options import SBATCH_GROUP_OPTIONS as SBATCH_GROUP_OPTIONS
from torchx_sched_slurm.options import SBATCH_JOB_OPTIONS as SBATCH_JOB_OPTIONS
from torchx_sched_slurm.options import SlurmOpts as SlurmOpts
from torchx_sched_slurm.options import option_problems
from torchx_sched_slurm.queries import Accounting, Job, JobId, queued_job, queued_jobs
from torchx_sched_slurm.queries import (
    _should_use_gpus_per_node_from_version as _should_use_gpus_per_node_from_version,
)
from torchx_sched_slurm.queries import version as version
from torchx_sched_slurm.records import Entry, Index, RoleEntry, SlurmRecord
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.request import _apply_app_id_env as _apply_app_id_env
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_sched_slurm.states import get_appstate_from_job as get_appstate_from_job
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_kit.workspace.builder import WorkspaceBuilder

# Maximum age of a description that the followers of an app's logs share.
_MAX_AGE_SECONDS = 2.0
# Maximum age of a description while the job's record has no outcome. The record shows most ends;
# only the queue shows that Slurm killed the job or that the first node failed.
_QUEUE_SECONDS = 15.0


class SlurmScheduler(BuilderWorkspaceMixin, Scheduler[SlurmOpts]):
    """A scheduler that runs apps as Slurm jobs, with Slurm's own commands.

    An app is one job. Roles that request different nodes become the components of a heterogeneous
    job. The option ``job_dir`` sets the job's working directory (default: the current directory).
    This directory also contains the logs (``slurm-<job id>-<role>-<replica>.out`` and ``.err``),
    the uploaded workspace, and the job's own record. The record shows how the job ended, even after
    Slurm has forgotten the job.

    .. code-block:: sh

        torchx run -s slurm -cfg partition=gpu,time=2:00:00 dist.ddp -j 2x8 --script train.py

    The macro ``rank0_env`` names the variable ``TORCHX_RANK0_HOST``. A retry requeues the whole
    job; with ``RetryPolicy.REPLICA`` only the replica's process is restarted, on the same node.

    Args:
        session_name: Name of the session.
        docker_client: Ignored; accepted for code written for upstream's TorchX.
        timeout: How long one Slurm command may take, in seconds.
        patience: How long to retry while the controller is unreachable, in seconds.
        host: The machine with Slurm's commands and the job's files; by default this machine.
    """

    resolves_secrets = True

    def __init__(
        self,
        session_name: str,
        docker_client: Any = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        host: Host | None = None,
    ) -> None:
        super().__init__("slurm", session_name)
        self._slurm = Slurm(host, timeout, patience)
        self._host = self._slurm.host
        self._accounting = Accounting(self._slurm)
        self._index = Index()
        self._descriptions: CoalescingCache[DescribeAppResponse] = CoalescingCache()
        # Entries of jobs that were described. The index has no jobs of other machines.
        self._entries: dict[str, Entry] = {}

    # -- submission

    def _workspace_builders(self) -> dict[str, WorkspaceBuilder]:
        builders = super()._workspace_builders()
        if type(builders.get("dir")) is DirBuilder:  # no plugin has replaced the builder
            builders["dir"] = JobDirBuilder(snapshots=isinstance(self._host, LocalHost))
        return builders

    def _validate(self, app: AppDef, scheduler: str, cfg: SlurmOpts | None = None) -> None:
        """Accept roles without a resource: they get the partition's defaults."""

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmBatchRequest]:
        problems = [*option_problems(cfg), *app_problems(app)]
        for role in app.roles:
            role_problems = chain(entrypoint_problems(role), replica_count_problems(role))
            problems += [f"role '{role.name}': {problem}" for problem in role_problems]
        if problems:
            raise RequestError(problems)
        _warn_of_ignored_fields(app, cfg)
        names = fit_names([role.name for role in app.roles], BATCH_JOB)
        docker = cfg.get("workspace_type") == "docker" and not cfg.container
        roles = {}
        copies = [copy for role in app.roles if is_snapshot(copy := image_and_copy(role)[1])]
        if len(set(copies)) > 1 and cfg.job_dir:
            raise RequestError(f"roles have different workspaces, but one job_dir: '{cfg.job_dir}'")
        for role in app.roles:
            request = SlurmReplicaRequest.from_role(
                names[role.name], role, cfg, container_image=role.image if docker else None
            )
            request.num_replicas = role.num_replicas
            if copies and not request.snapshot:
                request.snapshot = copies[0]  # as with job_dir, roles share a directory
            if role.retry_policy == RetryPolicy.REPLICA:
                request.max_retries = role.max_retries
            roles[role.name] = request
        cmd = ["sbatch", "--parsable"]
        cmd += [f"--{key}={cfg[key]}" for key in sorted(SBATCH_JOB_OPTIONS) if cfg[key]]
        requeued = [role for role in app.roles if role.retry_policy != RetryPolicy.REPLICA]
        batch = SlurmBatchRequest(
            cmd=cmd,
            replicas=roles,
            job_dir=cfg.job_dir,
            max_retries=min((role.max_retries for role in requeued), default=0),
            job_name=fit_name(app.name, BATCH_JOB),
            setup=list(cfg.setup or ()),
            inherit_env=cfg.inherit_env,
        )
        batch.materialize()  # report invalid arguments in the dry run
        return AppDryRunInfo(batch, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmBatchRequest]) -> str:
        """Build the workspaces that the dry run planned, and submit the job.

        Raises:
            RefusedError: Slurm refuses a value of the request.
            SlurmError: Slurm does not accept the job, or its controller is unreachable.
            RequestError: The job's directory is not writable.
        """
        from torchx_sched_slurm.submit import submit

        self.build_pending(dryrun_info)
        request = dryrun_info.request
        job_id, folder, record = submit(self._slurm, request)
        names = {role.name: name for name, role in request.replicas.items()}
        self._index.put(
            Entry(
                job_id,
                posixpath.basename(record),
                dryrun_info.app.name if dryrun_info.app else request.job_name,
                folder,
                record,
                submitted=time.time(),
                roles=[
                    RoleEntry(names[role.name], role.name, role.num_replicas)
                    for group in request.groups()
                    for role in group
                ],
            )
        )
        return job_id

    # -- submitted jobs

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of a job, or None if the job does not exist.

        The description combines the job's own record, Slurm's queue and accounting.

        Raises:
            SlurmError: Slurm cannot be queried, and the job has not recorded its end.
        """
        from torchx_sched_slurm import describe

        job_id = JobId.parse(app_id)
        entry = self._index.get(app_id) if job_id else None
        if job_id is None or (entry is not None and entry.deleted):
            return None
        outcome = SlurmRecord(self._host, entry.record).outcome() if entry else None
        if entry is not None and outcome is not None and outcome.state == "SUCCEEDED":
            self._entries[app_id] = entry
            return describe.describe(self._host, app_id, entry, None)
        job, warning = None, ""
        try:
            job = queued_job(self._slurm, job_id)
        except SlurmError as e:
            if not (entry and entry.state) and (outcome is None or outcome.state == "REQUEUED"):
                raise
            warning = f"this is the job's own record, because Slurm did not answer: {e}"
        if job is None and not warning and not (entry and entry.state):
            job = self._accounting.job(job_id)
        entry = _entry_of_job(entry, job)
        if entry is None:
            if job is None:
                return None
            entry = describe.entry_from_record(self._host, app_id, job)
        if entry is not None:
            self._entries[app_id] = entry
        description = describe.describe(self._host, app_id, entry, job, warning)
        self._save_final_state(entry, job)
        return description

    def _save_final_state(self, entry: Entry | None, job: Job | None) -> None:
        """Save Slurm's final state of a job in the index, because Slurm forgets ended jobs."""
        if entry is None or not entry.submitted or job is None:
            return
        state = job[0].state
        final_state = state if is_terminal(appstate_from_slurm_state(state)) else ""
        if entry.state != final_state:
            entry.state = final_state
            try:
                self._index.put(entry)
            except BackendError:
                pass  # without write access to the index, the state can still be queried

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's jobs, the newest first.

        The list contains the jobs in the queue, the jobs submitted with the current
        ``$TORCHX_HOME``, and the jobs of the last two weeks in accounting.

        Raises:
            SlurmError: The queue cannot be queried.
        """
        from torchx_sched_slurm import describe

        jobs = self._accounting.recent_jobs()
        jobs.update(queued_jobs(self._slurm))
        entries = {entry.app_id: entry for entry in self._index.entries()}
        apps = []
        for app_id in {**jobs, **entries}:
            job = jobs.get(app_id)
            entry = _entry_of_job(entries.get(app_id), job)
            if entry is not None and entry.deleted:
                continue
            state, _ = describe.app_state(self._host, entry, job)
            name = entry.name if entry else job[0].name if job else ""
            apps.append(ListAppResponse(app_id, state, name=name))
        return sorted(apps, key=lambda app: int(app.app_id.partition(";")[0]), reverse=True)

    def _cancel_existing(self, app_id: str) -> None:
        job_id = JobId.parse(app_id)
        description = self.describe(app_id)
        if job_id is None or description is None or is_terminal(description.state):
            return
        self._slurm.run_idempotent("scancel", *job_id.options(), job_id.number)
        entry = self._index.get(app_id)
        if entry is not None:
            entry.cancelled = True
            self._index.put(entry)

    def _delete_existing(self, app_id: str) -> None:
        """Cancel a job, remove its record and hide the job from lists, but keep its logs."""
        self._cancel_existing(app_id)
        entry = self._index.get(app_id) or Entry(app_id, "", "", "", "")
        description = self.describe(app_id)
        # keep the record of a job that is still ending, because the job writes to it
        if entry.record and (description is None or is_terminal(description.state)):
            SlurmRecord(self._host, entry.record).remove()
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
        """Return the log lines of one replica, including the lines of earlier attempts.

        ``since`` and ``until`` are ignored with a warning, because log lines have no timestamps.
        Standard output and standard error are separate files. Of the lines that already exist, all
        lines of standard output come first.

        Raises:
            BackendError: The job does not exist, or the job has ended and the log file is missing.
            UnknownReplicaError: The job has no such role or replica.
        """
        from torchx_kit.jobs.logs import replica_log, warn_if_limited_by_time

        warn_if_limited_by_time("slurm", since, until)
        number = app_id.partition(";")[0]
        description = self._recent_description(app_id)
        entry = self._entries.get(app_id)
        if description is None and app_id not in _get_job_dirs():
            raise BackendError(f"job {app_id} does not exist")
        if entry is not None and entry.roles:
            check_replica(app_id, {role.name: role.replicas for role in entry.roles}, role_name, k)
        folder, file_name, role = self._log_location(app_id, entry, role_name)
        record = SlurmRecord(self._host, entry.record) if entry else None
        return replica_log(
            self._host,
            posixpath.join(folder, f"slurm-{number}-{file_name}-{k}"),
            streams,
            regex,
            follow=should_tail,
            is_running=description is not None and not is_terminal(description.state),
            is_finished=lambda: self._has_ended(app_id, record),
            watch=record.end_files(role, k) if record else (),
            missing_hint=lambda: record.batch_log_hint(number) if record else "",
            last=last,
            partial=partial,
        )

    def _log_location(
        self, app_id: str, entry: Entry | None, role_name: str
    ) -> tuple[str, str, int]:
        """Return the directory of the logs, the role's name in file names, and the role's index."""
        if entry is not None:
            for index, role in enumerate(entry.roles):
                if role.name == role_name:
                    return entry.folder, role.file_name, index
        folder = entry.folder if entry else _get_job_dirs().get(app_id)
        return folder or self._host.resolve(), role_name.replace("/", "_"), 0

    def _has_ended(self, app_id: str, record: SlurmRecord | None) -> bool:
        """Return whether a job has ended.

        Every call reads the job's record; the queue is queried at most every few seconds.
        """
        outcome = record.outcome() if record else None
        if outcome is not None and outcome.state == "SUCCEEDED":
            return True
        max_age = _MAX_AGE_SECONDS if outcome else _QUEUE_SECONDS
        description = self._recent_description(app_id, max_age)
        return description is None or is_terminal(description.state)

    def _recent_description(
        self, app_id: str, max_age: float = _MAX_AGE_SECONDS
    ) -> DescribeAppResponse | None:
        last = self._descriptions.last(app_id)
        if last is not None and last.state == AppState.PENDING:
            max_age = _MAX_AGE_SECONDS  # only a query shows that a pending job has started
        return self._descriptions.get(app_id, lambda _: self.describe(app_id), max_age)


def create_scheduler(session_name: str, docker_client: Any = None, **kwargs: Any) -> SlurmScheduler:
    """Return the scheduler.

    Args:
        session_name: Name of the session.
        docker_client: Ignored; accepted for code written for upstream's TorchX.
        kwargs: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
    """
    own = {key: kwargs[key] for key in ("timeout", "patience", "host") if key in kwargs}
    return SlurmScheduler(session_name, docker_client, **own)


def _entry_of_job(entry: Entry | None, job: Job | None) -> Entry | None:
    """Return the entry, or None if it belongs to an earlier job with the same number."""
    if entry is None or job is None or job[0].command is None:
        return entry
    return entry if job[0].mark == entry.mark else None


def _warn_of_ignored_fields(app: AppDef, cfg: SlurmOpts) -> None:
    warnings = []
    for role in app.roles:
        if role.mounts and not cfg.container and cfg.get("workspace_type") != "docker":
            warnings.append(
                f"role '{role.name}': mounts are ignored without a container;"
                " set the option container"
            )
        if role.retry_policy == RetryPolicy.ROLE and role.max_retries and len(app.roles) > 1:
            warnings.append(
                f"role '{role.name}': retry policy ROLE is not supported;"
                " a retry requeues the whole job"
            )
    if warnings:
        import logging  # imported here, so that start-up does not load it

        for warning in warnings:
            logging.getLogger(__name__).warning(warning)
