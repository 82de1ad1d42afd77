"""The scheduler, and the names that users import from this module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

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
from torchx_sched_slurm.jobs import SlurmJob, parse_job_id, selector
from torchx_sched_slurm.options import SBATCH_GROUP_OPTIONS as SBATCH_GROUP_OPTIONS
from torchx_sched_slurm.options import SBATCH_JOB_OPTIONS as SBATCH_JOB_OPTIONS
from torchx_sched_slurm.options import SlurmOpts as SlurmOpts
from torchx_sched_slurm.options import option_problems
from torchx_sched_slurm.request import MEMORY_MESSAGE, image_and_copy, new_mark
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_sched_slurm.system import Slurm, parse_nodes
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

        def is_restarted_alone(role: Role) -> bool:
            return role.retry_policy == RetryPolicy.REPLICA and rules is None

        def request_of(role: Role) -> SlurmReplicaRequest:
            image = role.image if docker else None
            name = names[role.name]
            request = SlurmReplicaRequest.from_role(name, role, cfg, container_image=image)
            return replace(
                request,
                num_replicas=role.num_replicas,
                max_retries=role.max_retries if is_restarted_alone(role) else 0,
                # all roles of a job have one working directory
                snapshot=request.snapshot or next(iter(copies), ""),
            )

        requests = for_each_role(app.roles, request_of)
        cmd = ["sbatch", "--parsable"]
        cmd += [f"--{key}={cfg[key]}" for key in sorted(SBATCH_JOB_OPTIONS) if cfg[key]]
        retries = (role.max_retries for role in app.roles if not is_restarted_alone(role))
        batch = SlurmBatchRequest(
            cmd=cmd,
            replicas={role.name: one for role, one in zip(app.roles, requests, strict=True)},
            job_dir=cfg.job_dir,
            max_retries=min(retries, default=0),
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
                img_root=self._host.resolve(role.img_root)
                if macros.app_id in role.img_root
                else self._host_path(role.img_root),
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
        job_id = parse_job_id(app_id)
        if job_id is None or job_id != selector(job_id):
            return None
        condition = f"{_DEPENDENCIES[outcome]}:{job_id}"
        given = str(cfg.get("dependency") or "")
        if "?" in given:  # the separator of alternative conditions
            return None
        return {**cfg, "dependency": f"{given},{condition}" if given else condition}

    # Methods for submitted jobs.

    def _entry(self, app_id: str) -> SlurmEntry | None:
        """Return the entry of a job, an array or a task; None if Slurm and the index have no job.

        The id may be the mark of a submission.
        """
        return cast("SlurmEntry | None", super()._entry(parse_job_id(app_id) or app_id))

    def _other_entry(self, job_id: str) -> SlurmEntry | None:
        """Return an entry for a job that the index lacks, made from its record, if it has one.

        None means that Slurm does not know the job. The id may be the mark of a submission.
        """
        if parse_job_id(job_id) is None:
            # The submission has ended. The entry of an array precedes those of its tasks.
            marked = (e for e in self._index.entries() if cast("SlurmEntry", e).mark == job_id)
            return cast("SlurmEntry | None", next(marked, None))
        from torchx_sched_slurm.describe import entry_from_record

        array_id, task = SlurmEntry.split_id(job_id)
        entry = SlurmEntry(job_id, "", "", "", complete=True)
        job = self._listing(entry).get(job_id)
        job = job or self.system.explain([JobInfo(job_id)]).get(job_id)
        if not isinstance(job, SlurmJob):
            return None
        other = entry_from_record(self.system, array_id, job)
        if other is None:
            return replace(entry, name=job.name)
        if task is None:
            return other
        return cast("SlurmEntry", other.make_element(task)) if task < len(other.names) else None

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
        output = self.system.run_idempotent("scontrol", "--details", "--oneliner", "show", "nodes")
        return GpuCounts.of_nodes(parse_nodes(output))

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the user's jobs, the newest first.

        The list contains the jobs in the queue, the jobs submitted with the current
        ``$TORCHX_HOME``, and the jobs of the last two weeks in accounting.

        Raises:
            BatchError: The queue cannot be queried.
        """
        # The id of a submission that has not ended begins with a letter.
        apps = [app for app in super().list(cfg) if app.app_id[0].isdigit()]
        return sorted(apps, key=_number_and_task, reverse=True)

    def _jobs_to_list(self) -> dict[str, JobInfo]:
        queued = super()._jobs_to_list()  # fails soon if the controller is down
        return {**self.system.recent_jobs(), **queued}

    def _other_apps(
        self, jobs: Mapping[str, JobInfo], known: Set[str]
    ) -> Sequence[ListAppResponse]:
        from torchx_kit.jobs.descriptions import listed
        from torchx_sched_slurm.describe import entry_from_record, list_item

        # The list item of an array that TorchX did not submit stands for its tasks.
        others = {i: job for i, job in jobs.items() if i not in known and "_" not in i}
        arrays = {
            i: entry
            for i, job in others.items()
            if isinstance(job, SlurmJob) and job.is_array and job.mark
            if (entry := entry_from_record(self.system, i, job)) and entry.names
        }
        elements = [element for array in arrays.values() for element in array.elements({})]
        found = self._describe_all(elements, jobs=jobs, pending_reasons=False)
        apps = [listed(found[one.app_id], name=one.name) for one in elements]
        return [*apps, *(list_item(job) for i, job in others.items() if i not in arrays)]

    def _cancel_existing(self, app_id: str) -> None:
        description = self.describe(app_id)
        if description is None or is_terminal(description.state):
            return
        app_id = description.app_id
        if parse_job_id(app_id) is None:
            raise BatchError(f"the submission of {app_id} has not ended; try again")
        self.system.cancel([app_id])
        entry = self._entry(app_id)
        if entry is not None and entry.submitted:
            self._mark_as_cancelled(entry)

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
    return SlurmScheduler.create(session_name, **kwargs)


def _number_and_task(app: ListAppResponse) -> tuple[int, int]:
    """Return job number and task number of an app, the sort key of :meth:`SlurmScheduler.list`."""
    number, _, task = selector(app.app_id).partition("_")
    return int(number), int(task or 0)


def _warn_of_ignored_fields(app: AppDef, cfg: SlurmOpts) -> None:
    for role in app.roles:
        if role.mounts and not cfg.container and cfg.get("workspace_type") != "docker":
            _logger().warning(
                "role '%s': mounts are ignored without a container; set the option container",
                role.name,
            )
        if role.retry_policy == RetryPolicy.ROLE and role.max_retries and len(app.roles) > 1:
            _logger().warning(
                "role '%s': retry policy ROLE is not supported; a retry requeues the whole job",
                role.name,
            )


def _logger() -> Any:
    import logging  # imported here, so that start-up does not load it

    return logging.getLogger(__name__)
