"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.client import client_arguments
from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.cluster_scheduler import ClusterScheduler
from torchx_kit.names.limits import BATCH_JOB, fit_name, fit_names
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_sched_slurm.client import Slurm, SlurmError
from torchx_sched_slurm.job_files.job_dirs import SLURM_JOB_DIRS as SLURM_JOB_DIRS
from torchx_sched_slurm.job_files.job_dirs import JobDirBuilder, image_and_copy, is_snapshot
from torchx_sched_slurm.job_files.records import Entry, Index, SlurmRecord
from torchx_sched_slurm.options import SBATCH_GROUP_OPTIONS as SBATCH_GROUP_OPTIONS
from torchx_sched_slurm.options import SBATCH_JOB_OPTIONS as SBATCH_JOB_OPTIONS
from torchx_sched_slurm.options import SlurmOpts as SlurmOpts
from torchx_sched_slurm.options import option_problems
from torchx_sched_slurm.queue.queries import (
    Accounting,
    Job,
    JobId,
    queued_job,
    queued_jobs,
    selector,
    time_of,
)
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo, RetryPolicy
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse

if TYPE_CHECKING:
    from torchx_kit.workspace.builder import WorkspaceBuilder
    from torchx_sched_slurm.logs import SlurmLogs
    from torchx_sched_slurm.queue.arrays import SlurmArrays
    from torchx_sched_slurm.sessions import SlurmSessions

# The dependency type of sbatch for each outcome that with_dependency accepts.
_DEPENDENCIES = {"ok": "afterok", "failed": "afternotok", "any": "afterany"}


class SlurmScheduler(ClusterScheduler[SlurmOpts, Entry]):
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

    features = replace(
        ClusterScheduler.features,
        dependencies=True,
        exec=True,
        ports=True,
        arrays=True,
        array_limit=True,
        mass_cancel=True,
        mass_delete=True,
    )
    _index: Index

    def __init__(
        self,
        session_name: str,
        docker_client: Any = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        host: Host | None = None,
    ) -> None:
        self._slurm = Slurm(host, timeout, patience)
        super().__init__("slurm", session_name, self._slurm.host, Index())
        self._accounting = Accounting(self._slurm)
        # Entries of described jobs by app id, because the index lacks jobs submitted elsewhere.
        self._entries: dict[str, Entry] = {}

    # Methods that submit apps.

    def _workspace_builders(self) -> dict[str, WorkspaceBuilder]:
        builders = super()._workspace_builders()
        if type(builders.get("dir")) is DirBuilder:  # no plugin has replaced the builder
            builders["dir"] = JobDirBuilder(snapshots=isinstance(self._host, LocalHost))
        return builders

    def _request_problems(self, app: AppDef, cfg: SlurmOpts) -> Iterable[str]:
        return option_problems(cfg)

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmBatchRequest]:
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
                request.snapshot = copies[0]  # all roles of a job have one working directory
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
            setup_replicas=cfg.setup_replicas,
            interface=cfg.interface or "",
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
            WorkspaceError: A workspace cannot be copied, or has changed since the dry run.
        """
        from torchx_sched_slurm.submit import app_name, submit

        self.build_pending(dryrun_info)
        name = app_name(dryrun_info)
        return submit(self._slurm, self._index, dryrun_info.request, name).app_id

    def _interrupted(
        self, entries: Iterable[Entry], jobs: Mapping[str, Job] = MappingProxyType({})
    ) -> dict[str, Entry]:
        """Return the entries of jobs whose submission was interrupted, by the job's number.

        Args:
            entries: Entries of the index.
            jobs: Jobs in the queue, by number. The other jobs are found only if they have started.
        """
        announced = {entry.mark: entry for entry in entries if entry.app_id == entry.mark}
        numbers = {
            mark: SlurmRecord(self._host, entry.record).job_number()
            for mark, entry in announced.items()
        }
        numbers |= {job[0].mark: n for n, job in jobs.items() if job[0].mark in announced}
        return {n: replace(announced[mark], app_id=n) for mark, n in numbers.items() if n}

    def _resolved(self, app_id: str) -> str:
        """Return the job number for the mark of a submission; return any other id unchanged.

        A mark is returned unchanged if Slurm has no job of the submission.

        Raises:
            SlurmError: The queue cannot be queried.
        """
        job_id = JobId.parse(app_id)
        if job_id is not None:
            return str(job_id)
        found = [entry for entry in self._index.entries() if entry.mark == app_id]
        numbers = [entry.app_id for entry in found if entry.app_id != app_id]
        if found and not numbers:
            numbers = [*self._interrupted(found, queued_jobs(self._slurm))]
        return numbers[0] if numbers else app_id

    @cached_property
    def _arrays(self) -> SlurmArrays:
        from torchx_sched_slurm.queue.arrays import SlurmArrays

        return SlurmArrays(self)

    @property
    def app_arrays(self) -> SlurmArrays:
        """Submits, cancels and deletes many apps at once, as tasks of arrays."""
        return self._arrays

    def with_dependency(
        self, cfg: Mapping[str, CfgVal], app_id: str, outcome: str
    ) -> Mapping[str, CfgVal] | None:
        """Return the options with a dependency on another job added.

        Return None if that job's id is invalid or names another cluster, or if the user's own
        dependency is a list of alternatives.
        """
        job_id = JobId.parse(app_id)
        if job_id is None or job_id.cluster:
            return None
        condition = f"{_DEPENDENCIES[outcome]}:{job_id.selector}"
        given = str(cfg.get("dependency") or "")
        if "?" in given:  # the separator of alternative conditions
            return None
        return {**cfg, "dependency": f"{given},{condition}" if given else condition}

    # Methods for submitted jobs.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of a job, or None if the job does not exist.

        The description combines the job's own record, Slurm's queue and accounting.

        Raises:
            SlurmError: Slurm cannot be queried, and the job has not recorded its end.
        """
        from torchx_sched_slurm import describe

        app_id = self._resolved(app_id)
        job_id = JobId.parse(app_id)
        entry = self._job_entry(job_id)
        if job_id is None:
            return describe.describe_announced(self._index.get(app_id))
        if entry is not None and entry.deleted:
            return None
        if entry is not None and entry.tasks:
            return self._arrays.describe(entry)
        job, warning = None, ""
        try:
            if job_id.task:
                job = self._arrays.queued(job_id).get(job_id.task)
            else:
                job = queued_job(self._slurm, job_id)
        except SlurmError as e:
            outcome = SlurmRecord(self._host, entry.record).outcome if entry else None
            if not (entry and entry.state) and (outcome is None or outcome.state == "REQUEUED"):
                raise
            warning = f"this is the job's own record, because Slurm did not answer: {e}"
        if job is None and not warning and not (entry and entry.state):
            job = _settled(entry, self._accounting.job(job_id))
        entry = _entry_of_job(entry, job)
        if entry is None:
            if job is None:
                return None
            entry = self._arrays.entry_from_record(job_id, job)
            if job_id.task:
                entry = self._arrays.task(entry, job_id)
            elif entry is not None:
                return self._arrays.describe(entry)
            else:
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
            ended = time_of(job[0].end) if final_state else None
            entry.state, entry.ended = final_state, ended.timestamp() if ended else 0.0
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

        queued = queued_jobs(self._slurm)  # first, because it fails soon if the controller is down
        jobs = self._accounting.recent_jobs()
        jobs.update({number: _with_ended(job, jobs.get(number)) for number, job in queued.items()})
        indexed = [*self._index.entries()]
        entries = {**self._interrupted(indexed, jobs), **{entry.app_id: entry for entry in indexed}}
        apps = []
        for app_id in {**jobs, **entries}:
            job, entry = jobs.get(app_id), entries.get(app_id)
            if app_id not in queued:
                job = _settled(entry, job)
            if entry is None and job is not None and not job[0].task:
                # Most jobs of a large list: they were not submitted with this $TORCHX_HOME.
                apps.append(describe.list_item(self._host, app_id, None, job))
                continue
            job_id, entry = JobId.parse(app_id), _entry_of_job(entry, job)
            if job_id is None or job_id.task or (entry is not None and entry.deleted):
                continue  # SlurmArrays.listed() reads the entries of tasks
            if entry is None and job is not None and job[0].task:
                entry = self._arrays.entry_from_record(job_id, job)
            if entry is not None and entry.tasks:
                apps += self._arrays.listed(entry, entries, job, is_queued=app_id in queued)
                continue
            apps.append(describe.list_item(self._host, app_id, entry, job))
        return sorted(apps, key=_number_and_task, reverse=True)

    def _job_entry(self, job_id: JobId | None) -> Entry | None:
        """Return the index entry of a job or of a task of an array, or None if there is none.

        For a task of a deleted array, return the entry of the array.
        """
        if job_id is None:
            return None
        entry = self._index.get(str(job_id))
        if entry is not None:
            return entry
        array = self._index.get(str(replace(job_id, task=""))) if job_id.task else None
        if array is None and not job_id.cluster:
            array = self._interrupted(self._index.entries()).get(job_id.number)
        if not job_id.task or (array is not None and array.deleted):
            return array
        return self._arrays.task(array, job_id)

    def _cancel_existing(self, app_id: str) -> None:
        app_id = self._resolved(app_id)
        job_id = JobId.parse(app_id)
        description = self.describe(app_id)
        if description is None or is_terminal(description.state):
            return
        if job_id is None:
            raise SlurmError(f"the submission of {app_id} has not ended; try again")
        self._slurm.run_idempotent("scancel", *job_id.options(), job_id.selector)
        self._arrays.forget(job_id)
        entry = self._job_entry(job_id)
        if entry is not None:
            entry.cancelled = True
            self._index.put(entry)

    def withdraw(self, app_id: str) -> bool:
        """Cancel a job unless it has started; see :meth:`Scheduler.withdraw`.

        Raises:
            SlurmError: Slurm cannot be reached, so it is unknown whether the job has started.
            RequestError: ``app_id`` is not the id of a Slurm job.
        """
        from torchx_sched_slurm.queue.withdrawal import hold_unless_started

        job_id = JobId.parse(app_id)
        if job_id is None:
            raise RequestError(f"'{app_id}' is not the id of a Slurm job")
        is_held = hold_unless_started(self._slurm, job_id)
        self._arrays.forget(job_id)
        if is_held:
            self._cancel_existing(app_id)
            return True
        if is_held is False:
            return False
        description = self.describe(app_id)
        entry = self._job_entry(job_id)
        return (
            entry is not None
            and SlurmRecord(self._host, entry.record).start is None
            and (description is None or description.state == AppState.CANCELLED)
        )

    def _deleted_entry(self, app_id: str) -> Entry:
        app_id = self._resolved(app_id)
        entry = self._job_entry(JobId.parse(app_id)) or self._index.get(app_id)
        return entry or Entry(app_id, "", "", "", "")

    @cached_property
    def app_logs(self) -> SlurmLogs:
        """Reads the logs of jobs."""
        from torchx_sched_slurm.logs import SlurmLogs

        return SlurmLogs(self)

    @property
    def app_sessions(self) -> SlurmSessions:
        """Runs commands and reaches ports on the nodes of replicas."""
        from torchx_sched_slurm.sessions import SlurmSessions

        return SlurmSessions(self)


def create_scheduler(session_name: str, docker_client: Any = None, **kwargs: Any) -> SlurmScheduler:
    """Return the scheduler.

    Args:
        session_name: Name of the session.
        docker_client: Ignored; accepted for code written for upstream's TorchX.
        kwargs: ``timeout``, ``patience`` and ``host`` of the scheduler; others are ignored.
    """
    return SlurmScheduler(session_name, docker_client, **client_arguments(kwargs))


def _with_ended(job: Job, recorded: Job | None) -> Job:
    """Return a queued job. For an array, add the ended tasks that only accounting still has."""
    queued = {part.task for part in job}
    return job + tuple(part for part in recorded or () if part.task and part.task not in queued)


def _settled(entry: Entry | None, job: Job | None) -> Job | None:
    """Return a job of accounting; None if it has no end, and the job has a record of its own.

    Accounting learns of the end of a job some seconds after the controller.
    """
    is_late = job is not None and not is_terminal(appstate_from_slurm_state(job[0].state))
    return None if entry is not None and is_late else job


def _number_and_task(app: ListAppResponse) -> tuple[int, int]:
    """Return job number and task number of an app, the sort key of :meth:`SlurmScheduler.list`."""
    number, _, task = selector(app.app_id).partition("_")
    return int(number), int(task or 0)


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
