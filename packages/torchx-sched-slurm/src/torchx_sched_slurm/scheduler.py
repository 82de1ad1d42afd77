"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from torchx_kit.batch.client import client_arguments
from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.scheduler import BatchScheduler
from torchx_kit.batch.states import JobInfo
from torchx_kit.hosts.api import Host
from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.attempts import attempt_rules, resume_dir_problems
from torchx_kit.names.limits import BATCH_JOB, fit_name, fit_names
from torchx_kit.role_checks import for_each_role
from torchx_kit.workspace.host_dir import is_tree
from torchx_sched_slurm.job_files.job_dirs import SLURM_JOB_DIRS as SLURM_JOB_DIRS
from torchx_sched_slurm.job_files.job_dirs import record_job_dir
from torchx_sched_slurm.job_files.records import SlurmEntry
from torchx_sched_slurm.job_files.script import RECORDS
from torchx_sched_slurm.jobs import JobId, SlurmJob, selector
from torchx_sched_slurm.options import SBATCH_GROUP_OPTIONS as SBATCH_GROUP_OPTIONS
from torchx_sched_slurm.options import SBATCH_JOB_OPTIONS as SBATCH_JOB_OPTIONS
from torchx_sched_slurm.options import SlurmOpts as SlurmOpts
from torchx_sched_slurm.options import option_problems
from torchx_sched_slurm.request import MEMORY_MESSAGE, image_and_copy, new_mark
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_sched_slurm.system import Slurm
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, AppDryRunInfo, RetryPolicy, Role
from torchx_specs.model.status import is_terminal
from torchx_specs.model.templates import macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, GpuCounts, ListAppResponse

if TYPE_CHECKING:
    from torchx_sched_slurm.logs import SlurmLogs
    from torchx_sched_slurm.sessions import SlurmSessions

# The dependency type of sbatch for each outcome that with_dependency accepts.
_DEPENDENCIES = {"ok": "afterok", "failed": "afternotok", "any": "afterany"}


class SlurmScheduler(BatchScheduler[SlurmOpts]):
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

    system_type = Slurm
    entry_type = SlurmEntry
    trees_in_containers = True
    local_trees = f"{RECORDS}/workspaces"
    # The records contain variables of earlier jobs, which may be secrets.
    files_of_jobs = "\n".join(
        f"{name}\n*/{name}"
        for name in (RECORDS, SLURM_JOB_DIRS, "slurm-[0-9]*.out", "slurm-[0-9]*.err")
    )
    features = replace(
        BatchScheduler.features,
        dependencies=True,
        exec=True,
        ports=True,
        gpus=True,
    )
    system: Slurm

    def __init__(
        self,
        session_name: str,
        docker_client: Any = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        host: Host | None = None,
    ) -> None:
        super().__init__(session_name, timeout=timeout, patience=patience, host=host)
        # Entries of described jobs and arrays that the index lacks, by app id.
        self._found: dict[str, SlurmEntry] = {}

    # Methods that submit apps.

    def _request_problems(self, app: AppDef, cfg: SlurmOpts) -> Iterable[str]:
        yield from option_problems(cfg)
        if isinstance(self._host, LocalHost):
            yield from resume_dir_problems(cfg.resume_dir)

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmBatchRequest]:
        _warn_of_ignored_fields(app, cfg)
        rules = attempt_rules(cfg)
        names = fit_names([role.name for role in app.roles], BATCH_JOB)
        docker = cfg.get("workspace_type") == "docker" and not cfg.container
        copies = [copy for role in app.roles if is_tree(copy := image_and_copy(role)[1])]
        if len(set(copies)) > 1 and cfg.job_dir:
            raise RequestError(f"roles have different workspaces, but one job_dir: '{cfg.job_dir}'")

        def request_of(role: Role) -> SlurmReplicaRequest:
            image = role.image if docker else None
            request = SlurmReplicaRequest.from_role(
                names[role.name], role, cfg, container_image=image
            )
            request.num_replicas = role.num_replicas
            # all roles of a job have one working directory
            request.snapshot = request.snapshot or next(iter(copies), "")
            if role.retry_policy == RetryPolicy.REPLICA and rules is None:
                request.max_retries = role.max_retries
            return request

        requests = for_each_role(app.roles, request_of)
        cmd = ["sbatch", "--parsable"]
        cmd += [f"--{key}={cfg[key]}" for key in sorted(SBATCH_JOB_OPTIONS) if cfg[key]]
        requeued = [
            role
            for role in app.roles
            if role.retry_policy != RetryPolicy.REPLICA or rules is not None
        ]
        batch = SlurmBatchRequest(
            cmd=cmd,
            replicas={role.name: one for role, one in zip(app.roles, requests, strict=True)},
            job_dir=cfg.job_dir,
            max_retries=min((role.max_retries for role in requeued), default=0),
            job_name=fit_name(app.name, BATCH_JOB),
            opts=cfg,
        )
        batch.materialize()  # report invalid arguments in the dry run
        return AppDryRunInfo(batch, repr)

    def _request(self, info: AppDryRunInfo[SlurmBatchRequest]) -> SlurmBatchRequest:
        request = info.request
        replicas = {
            name: replace(
                role,
                snapshot=self._host_path(role.snapshot),
                img_root=self._img_root(role.img_root),
            )
            for name, role in request.replicas.items()
        }
        return replace(
            request,
            replicas=replicas,
            system=self.system,
            name=info.app.name if info.app else request.job_name,
            app_id=new_mark(),
        )

    def _img_root(self, path: str) -> str:
        return self._host.resolve(path) if macros.app_id in path else self._host_path(path)

    def _submit(self, request: SlurmBatchRequest) -> SlurmEntry:
        try:
            entry = super()._submit(request)
        except BatchError as e:
            if MEMORY_MESSAGE not in str(e).lower() or not request.is_memory_unmanaged():
                raise
            _logger().warning(
                "the partition does not manage memory: submitting again without a request for"
                " memory; set the option nomem to omit this warning"
            )
            entry = super()._submit(request.without_memory())
        if request.job_dir:
            record_job_dir(entry.app_id, entry.folder)
        return cast("SlurmEntry", entry)

    def _has_containers(self, info: AppDryRunInfo[Any]) -> bool:
        return bool(info.cfg.get("container"))

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

    def _resolved(self, app_id: str) -> str:
        """Return the job number for the mark of a submission; return any other id unchanged.

        A mark is returned unchanged if the submission has not ended.
        """
        job_id = JobId.parse(app_id)
        if job_id is not None:
            return str(job_id)
        entry = super()._entry(app_id)  # None if the submission has ended before
        entries = self._index.entries() if entry is None else [entry]
        # The entry of an array precedes those of its tasks.
        marked = (e for e in entries if isinstance(e, SlurmEntry) and e.mark == app_id)
        return next((one.app_id for one in marked), app_id)

    def _entry(self, app_id: str) -> SlurmEntry | None:
        """Return the index entry of a job or of a task of an array, or None if there is none."""
        return cast("SlurmEntry | None", super()._entry(self._resolved(app_id)))

    def _known(self, app_id: str) -> SlurmEntry | None:
        """Return the entry of a job, also if the index lacks it and it was described before."""
        return self._entry(app_id) or self._found.get(app_id)

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of a job, or None if the job does not exist.

        The description combines the job's own record, Slurm's queue and accounting.

        Raises:
            BatchError: Slurm cannot be queried, and the job has not recorded its end.
        """
        app_id = self._resolved(app_id)
        job_id = JobId.parse(app_id)
        entry = self._entry(app_id)
        if entry is not None:
            return self._described(entry)
        if job_id is None:
            return None
        jobs: Mapping[str, JobInfo] = self.system.listing([app_id])[0]
        if app_id not in jobs:
            jobs = self.system.explain([JobInfo(app_id)])
        job = jobs.get(app_id)
        if not isinstance(job, SlurmJob):
            return None
        entry = self._entry_from_record(job_id, job) or SlurmEntry(app_id, job.name, "", "")
        self._found[app_id] = entry
        if entry.names:
            return self._described(entry)
        return self._describe_all([entry], jobs=jobs)[app_id]

    def _entry_from_record(self, job_id: JobId, job: SlurmJob) -> SlurmEntry | None:
        """Return the entry of a job, array or task that is not in the index; None without a record.

        Args:
            job_id: The id of the job.
            job: The job as the queue or accounting lists it.
        """
        from torchx_sched_slurm.describe import entry_from_record

        number = str(replace(job_id, task=""))
        entry = self._found.get(number)
        if entry is None or not entry.names:  # the record of a single job may appear later
            entry = entry_from_record(self._host, number, job.parts)
        if entry is None or not job.parts[0].task:
            return entry
        self._found[number] = entry
        return _task(entry, job_id) if entry.names else None

    def _describe_all(
        self, entries: Collection[Any], **options: Any
    ) -> dict[str, DescribeAppResponse]:
        from torchx_sched_slurm.describe import SlurmApp

        return super()._describe_all(entries, app_type=SlurmApp, **options)

    def gpus(self, cfg: Mapping[str, CfgVal] | None = None) -> GpuCounts:
        """Return how many GPUs of the cluster are free, in use and unavailable.

        Raises:
            BatchError: The nodes cannot be queried.
        """
        return self.system.gpus()

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's jobs, the newest first.

        The list contains the jobs in the queue, the jobs submitted with the current
        ``$TORCHX_HOME``, and the jobs of the last two weeks in accounting.

        Raises:
            BatchError: The queue cannot be queried.
        """
        apps = [app for app in super().list(cfg) if JobId.parse(app.app_id)]
        return sorted(apps, key=_number_and_task, reverse=True)

    def _jobs_to_list(self) -> dict[str, JobInfo]:
        queued = super()._jobs_to_list()  # fails soon if the controller is down
        return {**self.system.recent_jobs(), **queued}

    def _other_apps(self, jobs: Iterable[JobInfo], known: Set[str]) -> Sequence[ListAppResponse]:
        from torchx_sched_slurm.describe import list_item

        # The list item of an array stands for its tasks.
        return [
            list_item(job)
            for job in jobs
            if job.job_id not in known and SlurmEntry.split_id(job.job_id)[1] is None
        ]

    def _cancel_existing(self, app_id: str) -> None:
        app_id = self._resolved(app_id)
        job_id = JobId.parse(app_id)
        description = self.describe(app_id)
        if description is None or is_terminal(description.state):
            return
        if job_id is None:
            raise BatchError(f"the submission of {app_id} has not ended; try again")
        self.system.cancel([app_id])
        self._listings.forget(str(replace(job_id, task="")))
        entry = self._entry(app_id)
        if entry is not None:
            self._mark_as_cancelled(entry)

    def _deleted_entry(self, app_id: str) -> SlurmEntry:
        return self._entry(app_id) or SlurmEntry(self._resolved(app_id), "", "", "")

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


def _task(array: SlurmEntry | None, job_id: JobId) -> SlurmEntry | None:
    """Return the entry of a task of an array; the given entry if the id is not that of a task."""
    if array is None or not job_id.task:
        return array
    index = int(job_id.task)
    has_task = index < len(array.names)
    return cast("SlurmEntry", array.make_element(index)) if has_task else None


def _number_and_task(app: ListAppResponse) -> tuple[int, int]:
    """Return job number and task number of an app, the sort key of :meth:`SlurmScheduler.list`."""
    number, _, task = selector(app.app_id).partition("_")
    return int(number), int(task or 0)


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
    for warning in warnings:
        _logger().warning(warning)


def _logger() -> Any:
    import logging  # imported here, so that start-up does not load it

    return logging.getLogger(__name__)
