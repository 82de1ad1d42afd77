"""Submission of a job, exactly once even if the controller becomes unreachable."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.submitter import this_process
from torchx_kit.names.ids import random_id
from torchx_kit.retry import Backoff, retry
from torchx_kit.secrets import hidden_secrets
from torchx_sched_slurm.client import Slurm, SlurmError, UnreachableError, as_refusal
from torchx_sched_slurm.job_files import job_dirs
from torchx_sched_slurm.job_files.records import (
    Entry,
    Index,
    RoleEntry,
    SlurmRecord,
    record_path,
)
from torchx_sched_slurm.job_files.script import SCRIPT
from torchx_sched_slurm.options import overridden_variables
from torchx_sched_slurm.queue import queries
from torchx_sched_slurm.request import SlurmBatchRequest
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.model.templates import macros

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDryRunInfo

_MEMORY_MESSAGE = "memory specification can not be satisfied"
# If sinfo reports at most this memory for a partition's nodes, the memory of these nodes was
# probably not configured: Slurm's default is 1 MB.
_UNMANAGED_MEMORY_MB = 1000
_LONGEST_PAUSE = 8.0
# Variables that configure Slurm's commands, not jobs.
_CLIENT_VARIABLES = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"}
)

logger = logging.getLogger(__name__)


def app_name(info: AppDryRunInfo[SlurmBatchRequest]) -> str:
    """Return the name of the app of a request."""
    return info.app.name if info.app else info.request.job_name


def submit(
    slurm: Slurm,
    index: Index,
    request: SlurmBatchRequest,
    name: str,
    files: Callable[[str], Iterable[tuple[str, str]]] = lambda record: (),
    tasks: int = 0,
) -> Entry:
    """Submit a job, add it to the index, and return its entry.

    If the submission is interrupted, the record stays, because Slurm may have accepted the job.

    Args:
        slurm: The client.
        index: The index.
        request: The job.
        name: The app's name.
        files: Function that returns further files of the record: path in the record, and content.
            Its argument is the directory of the record.
        tasks: The number of tasks if the job is an array of apps, else 0.

    Raises:
        RefusedError: Slurm refuses a value of the request.
        SlurmError: Slurm does not accept the job, or cannot be reached.
        RequestError: The job's directory is not writable.
    """
    host = slurm.host
    mark = random_id(12)
    tracked = bool(request.job_dir)
    base, folder = _directories(host, request)
    record = SlurmRecord(host, record_path(base, mark))
    names = {role.name: key for key, role in request.replicas.items()}
    roles = [
        RoleEntry(names[role.name], role.name, role.num_replicas)
        for group in request.groups()
        for role in group
    ]
    entry = Entry(
        *(mark, mark, name, folder, record.path, time.time(), roles),
        tasks=tasks,
        submitter=this_process(),
    )
    request = replace(request, record=record.path, job_dir=folder)
    try:
        path = record.create(SCRIPT, request.materialize(), option="job_dir")
        argv = [*request.cmd, f"--chdir={base}", path]
        for name, text in files(record.path):
            record.create(name, text, option="job_dir")
        env = {**({} if request.inherit_env else _surrounding_job(host)), **hidden_secrets(host)}
        for role in request.replicas.values():
            env |= overridden_variables(role.component_opts(""))
        index.announce(entry)
        try:
            job_id = _submit_once(slurm, argv, mark, env)
        except SlurmError as e:
            if _MEMORY_MESSAGE not in str(e).lower() or not _is_memory_unmanaged(slurm, request):
                raise
            logger.warning(
                "the partition does not manage memory: submitting again without a request for"
                " memory; set the option nomem to omit this warning"
            )
            host.write(path, _without_memory(request).materialize())
            job_id = _submit_once(slurm, argv, mark, env)
    except (SlurmError, RequestError, HostFileError) as e:
        if not isinstance(e, UnreachableError):
            record.remove()
            index.withdraw(mark)
        raise
    folder = folder.replace(macros.app_id, job_id.selector)
    if tracked:
        _save_job_dir(str(job_id).replace("@", ";"), folder)
    entry = replace(entry, app_id=str(job_id), folder=folder)
    index.confirm(entry)
    return entry


def _directories(host: Host, request: SlurmBatchRequest) -> tuple[str, str]:
    """Return the absolute paths of the directory of records and of the directory of logs.

    The paths differ only if ``job_dir`` contains ``${app_id}``: then the job creates the second
    directory.

    Raises:
        RequestError: The directory of records cannot be created.
    """
    if not request.job_dir:
        return host.resolve(), host.resolve()
    base = host.resolve(job_dirs.fixed_part(request.job_dir))
    try:
        host.make_dirs(base)
    except HostFileError as e:
        raise RequestError(f"option job_dir: {e}") from None
    return base, host.resolve(request.job_dir)


def _surrounding_job(host: Host) -> dict[str, None]:
    """Return the variables of a surrounding Slurm job that would change the new job.

    The value None removes a variable. Outside of a Slurm job, return an empty dict, because
    such variables are then the user's defaults for sbatch.
    """
    names = host.variable_names()
    if "SLURM_JOB_ID" not in names:
        return {}
    return dict.fromkeys(
        name
        for name in names
        if name.startswith(("SBATCH_", "SLURM_", "SRUN_")) and name not in _CLIENT_VARIABLES
    )


def _submit_once(
    slurm: Slurm, argv: list[str], mark: str, env: Mapping[str, None]
) -> queries.JobId:
    """Submit a job exactly once, and return the job's id.

    If sbatch gets no answer, the controller may still have accepted the job. So search the queue
    for a script's path with the mark, and submit the job again only if no job has this mark.
    """
    backoff = Backoff(
        slurm.patience, longest_pause=_LONGEST_PAUSE, sleep=slurm.sleep, clock=slurm.clock
    )
    try:
        while True:
            try:
                output = slurm.run(*argv, env=env)
                break
            except UnreachableError as e:
                logger.warning("%s; retrying for at most %g s", e, slurm.patience)
                backoff.pause_after(e)
            except SlurmError as e:
                raise as_refusal(e) from None
            job_id = retry(lambda: _job_with_mark(slurm, mark), UnreachableError, backoff)
            if job_id is not None:
                return job_id
    except UnreachableError as e:
        raise UnreachableError(
            f"{e}; retried for {slurm.patience:g} s. Slurm may have accepted the job: then"
            f" squeue -o '%i %o' lists it with a path that contains {mark}"
        ) from None
    lines = [line.strip() for line in output.split("\n") if line.strip()]
    found = queries.JobId.parse(lines[-1]) if lines else None
    if found is None:
        raise BackendError(f"sbatch printed no job id, but {output.strip()!r}")
    return found


def _job_with_mark(slurm: Slurm, mark: str) -> queries.JobId | None:
    """Return the id of the job whose script has this mark, or None if there is none."""
    output = slurm.run("squeue", "-h", "-t", "all", "-u", slurm.host.user(), "-o", "%i %o")
    for line in output.split("\n"):
        if queries.mark_of_script(line.rstrip()) == mark:
            return queries.JobId(re.split("[+_]", line.split()[0])[0])
    return None


def _is_memory_unmanaged(slurm: Slurm, request: SlurmBatchRequest) -> bool:
    partitions = {role.sbatch_opts.get("partition") for role in request.replicas.values()}
    memory: dict[str | None, int] = {}
    for line in slurm.run("sinfo", "-h", "--noconvert", "-o", "%P,%m").split():
        name, _, size = line.partition(",")
        digits = size.rstrip("+")
        if digits.isdigit():
            memory[name.rstrip("*")] = int(digits)
            if name.endswith("*"):  # the default partition
                memory[None] = int(digits)
    return all(
        memory.get(name, _UNMANAGED_MEMORY_MB + 1) <= _UNMANAGED_MEMORY_MB for name in partitions
    )


def _without_memory(request: SlurmBatchRequest) -> SlurmBatchRequest:
    roles = {}
    for key, role in request.replicas.items():
        opts = {name: value for name, value in role.sbatch_opts.items() if name != "mem"}
        roles[key] = replace(role, sbatch_opts=opts)
    return replace(request, replicas=roles)


def _save_job_dir(job_id: str, folder: str) -> None:
    try:
        job_dirs._save_job_dir(job_id, folder)
    except OSError as e:
        logger.warning(
            "cannot write %s: %s; earlier versions of TorchX will not find the job's logs",
            job_dirs.SLURM_JOB_DIRS,
            e.strerror or e,
        )
