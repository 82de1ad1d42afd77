"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.client import client_arguments
from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.deletion import DeletesManyApps
from torchx_kit.jobs.logs import FileLogsMixin, ReplicaLog
from torchx_kit.jobs.submitter import this_process
from torchx_kit.jobs.withdrawal import WithdrawsApps
from torchx_kit.names.limits import BATCH_JOB, fit_name, fit_names
from torchx_kit.role_checks import check_replica
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_slurm.client import RefusedError as RefusedError
from torchx_sched_slurm.client import Slurm as Slurm
from torchx_sched_slurm.client import SlurmError as SlurmError
from torchx_sched_slurm.client import UnreachableError as UnreachableError
from torchx_sched_slurm.job_files.job_dirs import SLURM_JOB_DIRS as SLURM_JOB_DIRS
from torchx_sched_slurm.job_files.job_dirs import JobDirBuilder, image_and_copy, is_snapshot
from torchx_sched_slurm.job_files.job_dirs import _get_job_dirs as _get_job_dirs
from torchx_sched_slurm.job_files.job_dirs import _save_job_dir as _save_job_dir
from torchx_sched_slurm.job_files.records import Entry, Index, RoleEntry, SlurmRecord, log_files
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
    time_of,
)
from torchx_sched_slurm.queue.queries import (
    _should_use_gpus_per_node_from_version as _should_use_gpus_per_node_from_version,
)
from torchx_sched_slurm.queue.queries import version as version
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.request import _apply_app_id_env as _apply_app_id_env
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_sched_slurm.states import get_appstate_from_job as get_appstate_from_job
from torchx_specs.errors import BackendError, RequestError, UnknownAppException
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.request_checks import RequestRules
from torchx_specs.schedulers.sessions import NotSupportedError, ReplicaNotRunningError

if TYPE_CHECKING:
    from torchx_kit.sessions.ports import Connection
    from torchx_kit.workspace.builder import WorkspaceBuilder
    from torchx_sched_slurm.queue.arrays import Arrays
    from torchx_sched_slurm.sessions import Placement
    from torchx_sched_slurm.submit import Submitted
    from torchx_specs.schedulers.sessions import Session, TerminalSize

# The dependency type of sbatch for each outcome that with_dependency accepts.
_DEPENDENCIES = {"ok": "afterok", "failed": "afternotok", "any": "afterany"}
# Maximum age of a description that the followers of an app's logs share, in seconds.
_MAX_AGE_SECONDS = 2.0
# Maximum age of a description while the job's record has no outcome, in seconds. The record shows
# most ends; only the queue shows that Slurm killed the job or that the first node failed.
_QUEUE_SECONDS = 15.0


class SlurmScheduler(
    FileLogsMixin, BuilderWorkspaceMixin, WithdrawsApps, DeletesManyApps, Scheduler[SlurmOpts]
):
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
    # A role without a resource gets the partition's defaults.
    request_rules = RequestRules(needs_resource=False, needs_entrypoint=True)
    lacks: ClassVar[Mapping[str, str]] = {"since_until": "Slurm records no times of log lines"}

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
        # Entries of described jobs by app id, because the index lacks jobs submitted elsewhere.
        self._entries: dict[str, Entry] = {}

    @cached_property
    def _arrays(self) -> Arrays:
        from torchx_sched_slurm.queue.arrays import Arrays

        return Arrays(self._slurm)

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
        from torchx_sched_slurm.submit import submit

        self.build_pending(dryrun_info)
        request = dryrun_info.request
        name = _name(dryrun_info)
        now = time.time()
        submitted = submit(
            self._slurm,
            request,
            announce=lambda announced: self._index.announce(_entry(request, announced, name, now)),
            withdraw=lambda announced: self._index.withdraw(announced.job_id),
        )
        self._confirm(_entry(request, submitted, name, now))
        return submitted.job_id

    def _confirm(self, entry: Entry) -> None:
        """Replace the announced entry, whose id is the mark, by an entry with the job's id.

        If this process is killed before, the announced entry stays in the index, and is an alias of
        the job: see :meth:`_resolved`.
        """
        self._index.put(entry)
        self._index.remove(entry.mark)

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
        if JobId.parse(app_id) is not None:
            return app_id
        found = [entry for entry in self._index.entries() if entry.mark == app_id]
        numbers = [entry.app_id for entry in found if entry.app_id != app_id]
        if found and not numbers:
            numbers = [*self._interrupted(found, queued_jobs(self._slurm))]
        return numbers[0] if numbers else app_id

    def submit_many(
        self,
        dryrun_infos: Iterable[AppDryRunInfo[SlurmBatchRequest]],
        *,
        max_parallel: int | None = None,
    ) -> Iterator[str]:
        """Submit several requests, and yield the id of each app once it is submitted.

        Requests become tasks of arrays if they differ only in arguments and environment variables:
        one ``sbatch --array`` for as many requests as the cluster's ``MaxArraySize`` allows.
        Otherwise, the requests are submitted one after the other.

        Args:
            dryrun_infos: The requests.
            max_parallel: How many tasks may run at the same time (``--array=0-99%8``); None means
                no limit. If the requests do not become arrays, at most this many are submitted.

        Raises:
            CapacityError: Slurm accepts no more jobs of this user at present; or the requests do
                not become arrays and are more than ``max_parallel``; or the option ``dependency``
                has alternatives (``?``), and the next array must wait for an earlier one. The apps
                whose ids were not yielded were not submitted.
            SlurmError: As for :meth:`schedule`, which raises further errors.
        """
        from torchx_kit.jobs.arrays import submit_one_by_one
        from torchx_sched_slurm.queue import arrays

        infos = list(dryrun_infos)
        requests = [info.request for info in infos]
        size = 0
        if arrays.can_be_array(requests):
            size = arrays.max_array_size(self._slurm)
        if size < 2:
            yield from submit_one_by_one(super().submit_many, infos, max_parallel)
            return
        for info in infos:
            self.build_pending(info)
        names = [_name(info) for info in infos]
        now = time.time()

        def entry(submitted: Submitted, tasks: int) -> Entry:
            return replace(_entry(requests[0], submitted, names[0], now), tasks=tasks)

        for submitted, part in arrays.submit_arrays(
            self._slurm,
            requests,
            names,
            size,
            max_parallel,
            lambda announced, tasks: self._index.announce(entry(announced, tasks)),
            lambda announced: self._index.withdraw(announced.job_id),
        ):
            self._confirm(entry(submitted, len(part)))
            for task in range(len(part)):
                yield arrays.task_id(submitted.job_id, task)

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
        from torchx_sched_slurm.queue import arrays

        app_id = self._resolved(app_id)
        job_id = JobId.parse(app_id)
        entry = self._entry(job_id)
        if job_id is None:
            return describe.describe_announced(self._index.get(app_id))
        if entry is not None and entry.deleted:
            return None
        if entry is not None and entry.tasks:
            return arrays.describe_array(entry, self._arrays.listed(entry, self._own(entry)))
        outcome = SlurmRecord(self._host, entry.record).outcome() if entry else None
        if entry is not None and outcome is not None and outcome.state == "SUCCEEDED":
            self._entries[app_id] = entry
            return describe.describe(self._host, app_id, entry, None)
        job, warning = None, ""
        try:
            if job_id.task:
                job = self._arrays.queued(job_id).get(job_id.task)
            else:
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
            entry = self._arrays.entry_from_record(job_id, job)
            if job_id.task:
                entry = self._arrays.task(entry, job_id)
            elif entry is not None:
                return arrays.describe_array(entry, self._arrays.listed(entry, self._own(entry)))
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

        jobs = self._accounting.recent_jobs()
        queued = queued_jobs(self._slurm)
        jobs.update({number: _with_ended(job, jobs.get(number)) for number, job in queued.items()})
        indexed = [*self._index.entries()]
        entries = {**self._interrupted(indexed, jobs), **{entry.app_id: entry for entry in indexed}}
        apps = []
        for app_id in {**jobs, **entries}:
            job, entry = jobs.get(app_id), entries.get(app_id)
            if entry is None and job is not None and not job[0].task:
                # Most jobs of a large list: they were not submitted with this $TORCHX_HOME.
                apps.append(describe.list_item(self._host, app_id, None, job))
                continue
            job_id, entry = JobId.parse(app_id), _entry_of_job(entry, job)
            if job_id is None or job_id.task or (entry is not None and entry.deleted):
                continue  # Arrays.listed() reads the entries of tasks
            if entry is None and job is not None and job[0].task:
                entry = self._arrays.entry_from_record(job_id, job)
            if entry is not None and entry.tasks:
                apps += self._arrays.listed(entry, entries, job, is_queued=app_id in queued)
                continue
            apps.append(describe.list_item(self._host, app_id, entry, job))
        return sorted(apps, key=_number_and_task, reverse=True)

    def _own(self, array: Entry) -> dict[str, Entry]:
        """Return the index entries that single tasks of an array have, by the id of the task."""
        prefix = f"{array.app_id.partition(';')[0]}_"
        return {entry.app_id: entry for entry in self._index.entries(prefix)}

    def _entry(self, job_id: JobId | None) -> Entry | None:
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
        entry = self._entry(job_id)
        if entry is not None:
            entry.cancelled = True
            self._index.put(entry)

    def cancel_many(self, app_ids: Iterable[str]) -> None:
        """End several apps. One call of scancel ends all given tasks of an array.

        Raises:
            SlurmError: Slurm cannot be reached.
        """
        from torchx_sched_slurm.queue import arrays

        tasks: list[JobId] = []
        for app_id in app_ids:
            job_id = JobId.parse(app_id)
            if job_id is not None and job_id.task:
                tasks.append(job_id)
            else:
                self.cancel(app_id)
        arrays.cancel_tasks(self._slurm, tasks)
        arrays.record_cancelled(self._index, tasks)
        for array in {replace(task, task="") for task in tasks}:
            self._arrays.forget(array)

    def withdraw(self, app_id: str) -> bool:
        """Cancel a job unless it has started; return True if the job will never start.

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
        entry = self._entry(job_id)
        return (
            entry is not None
            and SlurmRecord(self._host, entry.record).started() is None
            and (description is None or description.state == AppState.CANCELLED)
        )

    def _delete_existing(self, app_id: str) -> None:
        """Cancel a job, remove its logs and its record, and hide the job from lists."""
        self._cancel_existing(app_id)
        app_id = self._resolved(app_id)
        entry = self._entry(JobId.parse(app_id)) or self._index.get(app_id)
        entry = entry or Entry(app_id, "", "", "", "")
        self._host.remove_files(log_files(entry))
        description = self.describe(app_id)
        # keep the record of a job that is still ending, because the job writes to it
        if entry.record and (description is None or is_terminal(description.state)):
            SlurmRecord(self._host, entry.record).remove()
        entry.deleted = True
        self._index.put(entry)

    def delete_many(self, app_ids: Iterable[str]) -> None:
        """Delete several apps. An array whose tasks are all deleted keeps one entry in the index.

        Raises:
            SlurmError: Slurm cannot be reached.
        """
        from torchx_sched_slurm.queue import arrays

        ids = list(app_ids)
        whole = arrays.whole_arrays(self._index, ids)
        for array_id in whole:
            self._delete_existing(array_id)
            for entry in self._own(Entry(array_id, "", "", "", "")).values():
                self._index.remove(entry.app_id)
        for app_id in ids:
            job_id = JobId.parse(app_id)
            if job_id is None or str(replace(job_id, task="")) not in whole:
                self.delete(app_id)

    # Methods for commands and ports inside a replica.

    def open_session(
        self,
        app_id: str,
        role_name: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command on the node of a replica, as a step that shares the job's resources.

        Without a terminal, Slurm passes the output line by line.
        """
        return self._placement(app_id, role_name, k).open(command, tty=tty, stdin=stdin)

    def open_port(self, app_id: str, role_name: str, k: int, port: int) -> Connection:
        """Return a socket that is connected to a port of the node of a replica."""
        from torchx_sched_slurm.sessions import open_port

        return open_port(self._placement(app_id, role_name, k), port)

    def _placement(self, app_id: str, role_name: str, k: int) -> Placement:
        from torchx_sched_slurm.sessions import find_placement

        app_id = self._resolved(app_id)
        description = self.describe(app_id)
        if description is None:
            raise UnknownAppException(f"{self.backend}://{self.session_name}/{app_id}")
        entry = self._entries.get(app_id)
        if entry is None or not entry.roles:
            raise NotSupportedError(
                f"job {app_id} has no record of its replicas; TorchX did not submit it, or its"
                " files were deleted"
            )
        replicas = {role.name: role.replicas for role in entry.roles}
        check_replica(app_id, replicas, role_name, k)
        if is_terminal(description.state):
            raise ReplicaNotRunningError(
                f"{role_name}/{k} of job {app_id} has ended ({description.state.name})"
            )
        return find_placement(self._slurm, app_id, entry, role_name, k)

    # Methods that read logs.

    def _replica_log(self, app_id: str, role_name: str, k: int) -> ReplicaLog:
        """Return the log of a replica, which has the lines of earlier attempts, too."""
        app_id = self._resolved(app_id)
        number = app_id.partition(";")[0]
        description = self._recent_description(app_id)
        entry = self._entries.get(app_id)
        if description is None and app_id not in _get_job_dirs():
            raise BackendError(f"job {app_id} does not exist")
        if entry is not None and entry.roles:
            check_replica(app_id, {role.name: role.replicas for role in entry.roles}, role_name, k)
        folder, file_name, role = self._log_location(app_id, entry, role_name)
        record = SlurmRecord(self._host, entry.record) if entry else None
        return ReplicaLog(
            self._host,
            posixpath.join(folder, f"slurm-{number}-{file_name}-{k}"),
            is_running=description is not None and not is_terminal(description.state),
            is_finished=lambda: self._has_ended(app_id, record),
            watch=record.end_files(role, k) if record else (),
            missing_hint=lambda: record.batch_log_hint(number) if record else "",
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
    return SlurmScheduler(session_name, docker_client, **client_arguments(kwargs))


def _entry(
    request: SlurmBatchRequest, submitted: Submitted, name: str, time_submitted: float
) -> Entry:
    """Return the index entry of a job.

    Args:
        request: The request.
        submitted: The job.
        name: Name of the app.
        time_submitted: When the submission began, in epoch seconds.
    """
    names = {role.name: name for name, role in request.replicas.items()}
    return Entry(
        submitted.job_id,
        posixpath.basename(submitted.record),
        name,
        submitted.folder,
        submitted.record,
        submitted=time_submitted,
        submitter=this_process(),
        roles=[
            RoleEntry(names[role.name], role.name, role.num_replicas)
            for group in request.groups()
            for role in group
        ],
    )


def _name(info: AppDryRunInfo[SlurmBatchRequest]) -> str:
    return info.app.name if info.app else info.request.job_name


def _with_ended(job: Job, recorded: Job | None) -> Job:
    """Return a queued job. For an array, add the ended tasks that only accounting still has."""
    queued = {part.task for part in job}
    return job + tuple(part for part in recorded or () if part.task and part.task not in queued)


def _number_and_task(app: ListAppResponse) -> tuple[int, int]:
    """Return job number and task number of an app, the sort key of :meth:`SlurmScheduler.list`."""
    number, _, task = app.app_id.partition(";")[0].partition("_")
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
