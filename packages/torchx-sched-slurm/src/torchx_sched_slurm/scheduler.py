"""The scheduler, and the names that older code imports from here."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.names.limits import BATCH_JOB, fit_name, fit_names
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_slurm.client import Slurm as Slurm
from torchx_sched_slurm.client import SlurmError as SlurmError
from torchx_sched_slurm.client import UnreachableError as UnreachableError
from torchx_sched_slurm.options import SBATCH_GROUP_OPTIONS as SBATCH_GROUP_OPTIONS
from torchx_sched_slurm.options import SBATCH_JOB_OPTIONS as SBATCH_JOB_OPTIONS
from torchx_sched_slurm.options import SlurmOpts as SlurmOpts
from torchx_sched_slurm.options import problems_of
from torchx_sched_slurm.queries import Accounting, Job, JobId, all_queued, queued
from torchx_sched_slurm.queries import (
    _should_use_gpus_per_node_from_version as _should_use_gpus_per_node_from_version,
)
from torchx_sched_slurm.queries import version as version
from torchx_sched_slurm.records import SLURM_JOB_DIRS as SLURM_JOB_DIRS
from torchx_sched_slurm.records import Entry, Index, Record, RoleRecord, remove_record
from torchx_sched_slurm.records import _get_job_dirs as _get_job_dirs
from torchx_sched_slurm.records import _save_job_dir as _save_job_dir
from torchx_sched_slurm.request import SlurmBatchRequest as SlurmBatchRequest
from torchx_sched_slurm.request import SlurmReplicaRequest as SlurmReplicaRequest
from torchx_sched_slurm.request import _apply_app_id_env as _apply_app_id_env
from torchx_sched_slurm.states import SLURM_STATES as SLURM_STATES
from torchx_sched_slurm.states import appstate_from_slurm_state as appstate_from_slurm_state
from torchx_sched_slurm.states import get_appstate_from_job as get_appstate_from_job
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream

if TYPE_CHECKING:
    from datetime import datetime

# Followers of one app's logs share what was found out so long ago, at most.
_FRESH_SECONDS = 2.0
# While a job runs its own files tell of its end; the queue is asked for what they can't tell.
_ASK_QUEUE_SECONDS = 15.0


class SlurmScheduler(BuilderWorkspaceMixin, Scheduler[SlurmOpts]):
    """Runs apps as jobs of Slurm, by its commands.

    A role is a group of nodes; roles that ask for different nodes make the job heterogeneous. The
    option ``job_dir`` names the folder of the job: its working directory, to which a workspace is
    copied and where its logs are (``slurm-<job id>-<role>-<replica>.out`` and ``.err``); without it
    that is the current directory. Beside the logs the job notes how it ends, so that its status can
    be asked for when Slurm has forgotten it.

    .. code-block:: sh

        torchx run -s slurm -cfg partition=gpu,time=2:00:00 dist.ddp -j 2x8 --script train.py

    ``macros.rank0_env`` is ``TORCHX_RANK0_HOST``. Retries requeue the whole job; with
    ``RetryPolicy.REPLICA`` the replica's process alone is started again, where it was.

    Args:
        session_name: who submits
        docker_client: kept for older code
        timeout: seconds that one command of Slurm may take
        patience: seconds to try again for while the controller does not answer
    """

    def __init__(
        self,
        session_name: str,
        docker_client: Any = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> None:
        super().__init__("slurm", session_name)
        self._slurm = Slurm(timeout, patience)
        self._accounting = Accounting(self._slurm)
        self._index = Index()
        self._seen: dict[str, tuple[float, DescribeAppResponse | None]] = {}
        self._asking = threading.Lock()

    # -- submitting

    def _validate(self, app: AppDef, scheduler: str, cfg: SlurmOpts | None = None) -> None:
        """A role may go without a resource: it gets what Slurm gives by default."""

    def _submit_dryrun(self, app: AppDef, cfg: SlurmOpts) -> AppDryRunInfo[SlurmBatchRequest]:
        problems = list(problems_of(cfg))
        problems += [problem for role in app.roles for problem in _problems_of_role(role)]
        if not app.roles:
            problems.append(f"app '{app.name}' has no roles")
        if problems:
            raise RequestError(problems)
        _warn_of_ignored(app, cfg)
        names = fit_names([role.name for role in app.roles], BATCH_JOB)
        if len(names) < len(app.roles):
            raise RequestError("two roles have the same name")
        docker = cfg.get("workspace_type") == "docker" and not cfg.container
        roles = {}
        for role in app.roles:
            request = SlurmReplicaRequest.from_role(
                names[role.name], role, cfg, container_image=role.image if docker else None
            )
            request.num_replicas = role.num_replicas
            if role.retry_policy == RetryPolicy.REPLICA:
                request.max_retries = role.max_retries
            roles[role.name] = request
        cmd = ["sbatch", "--parsable"]
        cmd += [f"--{key}={cfg[key]}" for key in sorted(SBATCH_JOB_OPTIONS) if cfg[key]]
        together = [role for role in app.roles if role.retry_policy != RetryPolicy.REPLICA]
        batch = SlurmBatchRequest(
            cmd=cmd,
            replicas=roles,
            job_dir=cfg.job_dir,
            max_retries=min((role.max_retries for role in together), default=0),
            job_name=fit_name(app.name, BATCH_JOB),
        )
        batch.materialize()  # whatever is wrong with a word shows now
        return AppDryRunInfo(batch, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[SlurmBatchRequest]) -> str:
        """Builds what the workspace still needs, and submits.

        Raises:
            SlurmError: Slurm refuses the job, or its controller cannot be reached
            RequestError: the job's folder cannot be written to
        """
        from torchx_sched_slurm.submit import submit

        self.build_pending(dryrun_info)
        request = dryrun_info.request
        job_id, folder, record = submit(self._slurm, request)
        by_file = {role.name: name for name, role in request.replicas.items()}
        self._index.put(
            Entry(
                job_id,
                os.path.basename(record),
                dryrun_info.app.name if dryrun_info.app else request.job_name,
                folder,
                record,
                submitted=time.time(),
                roles=[
                    RoleRecord(by_file[role.name], role.name, role.num_replicas)
                    for group in request.groups()
                    for role in group
                ],
            )
        )
        return job_id

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what is known of a job: from itself, the queue, and accounting.

        Raises:
            SlurmError: Slurm cannot be asked, and the job has not said how it has ended
        """
        from torchx_sched_slurm import describe as describing

        job_id = JobId.parse(app_id)
        entry = self._index.get(app_id) if job_id else None
        if job_id is None or (entry is not None and entry.deleted):
            return None
        outcome = Record(entry.record).outcome() if entry else None
        if outcome is not None and outcome.state == "SUCCEEDED":
            return describing.describe(app_id, entry, None)
        job, trouble = None, ""
        try:
            job = queued(self._slurm, job_id)
        except SlurmError as e:
            if not (entry and entry.state) and (outcome is None or outcome.state == "REQUEUED"):
                raise
            trouble = f"as the job has said; {e}"
        if job is None and not trouble and not (entry and entry.state):
            job = self._accounting.job(job_id)
        entry = _matching(entry, job)
        if entry is None:
            if job is None:
                return None
            entry = describing.entry_of(app_id, job)
        found = describing.describe(app_id, entry, job, trouble)
        self._note_end(entry, job)
        return found

    def _note_end(self, entry: Entry | None, job: Job | None) -> None:
        """Keeps Slurm's word for how a job has ended, for when it has forgotten it."""
        if entry is None or not entry.submitted or job is None:
            return
        state = job[0].state
        ended = state if is_terminal(appstate_from_slurm_state(state)) else ""
        if entry.state != ended:
            entry.state = ended
            try:
                self._index.put(entry)
            except BackendError:
                pass  # whoever may not write here can ask all the same

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns this user's jobs: those in the queue, those submitted from this home, and of the
        last two weeks those that accounting knows. The newest comes first.

        Raises:
            SlurmError: the queue cannot be asked
        """
        from torchx_sched_slurm import describe as describing

        jobs = self._accounting.all_jobs()
        jobs.update(all_queued(self._slurm))
        entries = {entry.app_id: entry for entry in self._index.entries()}
        apps = []
        for app_id in {**jobs, **entries}:
            job = jobs.get(app_id)
            entry = _matching(entries.get(app_id), job)
            if entry is not None and entry.deleted:
                continue
            state, _ = describing.app_state(entry, job)
            name = entry.name if entry else job[0].name if job else ""
            apps.append(ListAppResponse(app_id, state, name=name))
        return sorted(apps, key=lambda app: int(app.app_id.partition(";")[0]), reverse=True)

    def _cancel_existing(self, app_id: str) -> None:
        job_id = JobId.parse(app_id)
        found = self.describe(app_id)
        if job_id is None or found is None or is_terminal(found.state):
            return
        self._slurm.ask("scancel", *job_id.options(), job_id.number)
        entry = self._index.get(app_id)
        if entry is not None:
            entry.cancelled = True
            self._index.put(entry)

    def _delete_existing(self, app_id: str) -> None:
        """Cancels a job and forgets it; its logs stay."""
        self._cancel_existing(app_id)
        entry = self._index.get(app_id) or Entry(app_id, "", "", "", "")
        found = self.describe(app_id)
        if entry.record and (found is None or is_terminal(found.state)):
            remove_record(entry.record)  # one that is ending still writes there
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
        """Returns the lines of one replica, those of earlier attempts included.

        Slurm keeps no times: ``since`` and ``until`` are ignored, with a warning. Both streams are
        two files; of what is there already, standard output comes first.

        Raises:
            BackendError: there is no such job, or no such log although the job has ended
        """
        from torchx_kit.logs.file_logs import Tail, follow_files, read_files, stream_files
        from torchx_sched_slurm.logs import missing

        if since is not None or until is not None:
            import warnings

            warnings.warn(
                "slurm keeps no times of log lines: since and until are ignored", stacklevel=2
            )
        number = app_id.partition(";")[0]
        entry = self._index.get(app_id) if JobId.parse(app_id) else None
        found = self._described(app_id)
        if found is None and app_id not in _get_job_dirs():
            raise BackendError(f"no job {app_id}")
        folder, file_name, role = _place_of(app_id, entry, role_name)
        base = os.path.join(folder, f"slurm-{number}-{file_name}-{k}")
        paths = stream_files(base, streams or Stream.COMBINED)
        if should_tail and found is not None and not is_terminal(found.state):
            record = Record(entry.record) if entry else None
            watch = record.watched(role, k) if record else []
            tail = Tail(lambda: self._has_ended(app_id, record), watch)
            return follow_files(paths, regex, tail)
        there = [path for path in paths if os.path.exists(path)]
        if not there and (found is None or is_terminal(found.state)):
            raise missing(paths, folder, number)
        return read_files(there, regex)

    def _has_ended(self, app_id: str, record: Record | None) -> bool:
        """Returns True once a job has ended; its own word is looked at often, Slurm's rarely."""
        outcome = record.outcome() if record else None
        if outcome is not None and outcome.state == "SUCCEEDED":
            return True
        found = self._described(app_id, _FRESH_SECONDS if outcome else _ASK_QUEUE_SECONDS)
        return found is None or is_terminal(found.state)

    def _described(self, app_id: str, fresh: float = _FRESH_SECONDS) -> DescribeAppResponse | None:
        with self._asking:  # who comes later finds what the first has asked
            when, found = self._seen.get(app_id, (None, None))
            now = time.monotonic()
            waits = found is not None and found.state == AppState.PENDING
            if when is None or now - when >= (_FRESH_SECONDS if waits else fresh):
                found = self.describe(app_id)
                self._seen[app_id] = (now, found)
            return found


def create_scheduler(session_name: str, docker_client: Any = None, **kwargs: Any) -> SlurmScheduler:
    """Returns the scheduler; keyword arguments for others are ignored."""
    own = {key: kwargs[key] for key in ("timeout", "patience") if key in kwargs}
    return SlurmScheduler(session_name, docker_client, **own)


def _matching(entry: Entry | None, job: Job | None) -> Entry | None:
    """Returns the entry if it is of this job, and not of one that had its number before."""
    if entry is None or job is None or not job[0].comment:
        return entry
    return entry if job[0].mark == entry.mark else None


def _place_of(app_id: str, entry: Entry | None, role_name: str) -> tuple[str, str, int]:
    """Returns the folder of a job's logs, the role's name in theirs, and its number."""
    if entry is not None:
        for number, role in enumerate(entry.roles):
            if role.name == role_name:
                return entry.folder, role.file_name, number
    folder = entry.folder if entry else _get_job_dirs().get(app_id) or os.getcwd()
    return folder, role_name.replace("/", "_"), 0


def _problems_of_role(role: Role) -> Iterable[str]:
    from torchx_specs.model.constants import MISSING

    if not role.entrypoint or role.entrypoint == MISSING:
        yield f"role '{role.name}': no entrypoint; set Role.entrypoint to the program to run"
    if role.num_replicas < 1:
        yield f"role '{role.name}' has {role.num_replicas} replicas; at least one is needed"


def _warn_of_ignored(app: AppDef, cfg: SlurmOpts) -> None:
    import logging

    logger = logging.getLogger(__name__)
    for role in app.roles:
        if role.mounts and not cfg.container and cfg.get("workspace_type") != "docker":
            logger.warning(
                "role %s: mounts need a container (option container); they are ignored", role.name
            )
        if role.retry_policy == RetryPolicy.ROLE and role.max_retries and len(app.roles) > 1:
            logger.warning("role %s: a retry restarts the whole job on Slurm", role.name)
