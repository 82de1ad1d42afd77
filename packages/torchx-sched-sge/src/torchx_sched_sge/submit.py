"""Submit an app as one array job for each role.

Grid Engine holds the jobs until it has accepted the last one. If it refuses a job, the held jobs
are deleted.
"""

from __future__ import annotations

import logging
import posixpath
import time

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.submitter import this_process
from torchx_kit.secrets import hidden_secrets
from torchx_sched_sge.client import Sge, SgeError, UnreachableError
from torchx_sched_sge.names import job_name, role_names
from torchx_sched_sge.queries import all_tasks
from torchx_sched_sge.records import SCRIPT, VARIABLES, Entry, Index, RoleEntry, app_record
from torchx_sched_sge.request import SgeRequest
from torchx_specs.errors import RequestError

# Variables that Grid Engine sets for jobs, besides those whose names begin with SGE_. If a job
# submits an app, they must not reach the app's jobs: Grid Engine replaces only some of them, and
# the others would keep the values of the submitting job.
_JOB_VARIABLES = frozenset(
    {"ARC", "ENVIRONMENT", "JOB_ID", "JOB_NAME", "JOB_SCRIPT", "NHOSTS", "NQUEUES", "NSLOTS"}
    | {"PE", "PE_HOSTFILE", "QUEUE", "REQUEST", "RESTARTED"}
)
# Writes the exported variables to the file $1, readable by the user alone.
_SAVE_VARIABLES = 'umask 077 && export -p > "$1"'

logger = logging.getLogger(__name__)


def submit(sge: Sge, request: SgeRequest, index: Index) -> None:
    """Submit an app, and add it to the index.

    Args:
        sge: The client.
        request: The app.
        index: The index.

    Raises:
        SgeError: Grid Engine refuses a job, or cannot be reached.
        RequestError: The app's directory is not writable.
    """
    host = sge.host
    folder = request.folder or host.resolve()
    try:
        host.make_dirs(folder)
    except HostFileError as e:
        raise RequestError(f"option job_dir: {e}") from None
    names = role_names(role.name for role in request.app.roles)
    roles = [
        RoleEntry(role.name, names[role.name], role.num_replicas) for role in request.app.roles
    ]
    entry = Entry(
        request.app_id, request.app.name, folder, roles, time.time(), submitter=this_process()
    )
    record = app_record(host, entry)
    record.create(SCRIPT, request.materialize(), option="job_dir")
    index.announce(entry)
    try:
        if request.cfg.inherit_env:
            path = posixpath.join(record.path, VARIABLES)
            sge.run(*("/bin/bash", "-c", _SAVE_VARIABLES, "bash", path), env=_hidden(host))
        for role, argv in zip(roles, request.qsubs(folder), strict=True):
            role.job = _job_id(sge.run(*argv))
        sge.run_idempotent("qrls", *entry.jobs)
    except UnreachableError as e:
        _undo(sge, entry, index)
        raise UnreachableError(
            f"{e}; Grid Engine may have accepted jobs, which it holds:"
            f" torchx cancel sge://torchx/{entry.app_id} deletes them"
        ) from None
    except SgeError:
        if _undo(sge, entry, index):
            record.remove()
            index.withdraw(entry.app_id)
        raise
    except BaseException:  # Ctrl-C
        _undo(sge, entry, index)
        raise
    entry.complete = True
    index.put(entry)


def delete_jobs(sge: Sge, entry: Entry) -> None:
    """Delete the jobs of an app that have not ended.

    During a submission, jobs whose ids are unknown are found by their names.

    Raises:
        SgeError: Grid Engine refuses, or cannot be reached.
    """
    add_missing_jobs(sge, entry)
    delete(sge, entry.jobs)


def add_missing_jobs(sge: Sge, entry: Entry) -> None:
    """Find the missing job ids of an app by the jobs' names, and add them to its entry.

    Do nothing if the entry is complete.

    Raises:
        SgeError: Grid Engine cannot be queried.
    """
    missing = [role for role in entry.roles if not role.job]
    if entry.complete or not missing:
        return
    found = {task.name: task.job_id for task in all_tasks(sge).values()}
    for role in missing:
        role.job = found.get(job_name(entry.app_id, role.job_name), "")


def delete(sge: Sge, jobs: list[str]) -> None:
    """Delete jobs; a job that has ended is not an error.

    Raises:
        SgeError: Grid Engine refuses, or cannot be reached.
    """
    if not jobs:
        return
    try:
        sge.run("qdel", *jobs)
    except UnreachableError:
        raise
    except SgeError as e:
        problems = str(e).removeprefix("qdel: ").split("; ")
        if not all("does not exist" in p or "deletion" in p or "deleted" in p for p in problems):
            raise


def _undo(sge: Sge, entry: Entry, index: Index) -> bool:
    """Delete the jobs of an interrupted submission; the app stays in the index.

    Returns:
        Whether Grid Engine has deleted all jobs. Otherwise, a warning was logged.
    """
    entry.cancelled = True
    index.put(entry)
    try:
        delete_jobs(sge, entry)
    except SgeError as e:
        logger.warning(
            "cannot delete the held jobs of sge://torchx/%s: %s; cancel the app to delete them",
            entry.app_id,
            e,
        )
        return False
    index.put(entry)  # with the ids of the jobs that were found
    return True


def _hidden(host: Host) -> dict[str, None]:
    """Return the variables that must not reach the jobs, each with the value None.

    These are secrets, and the variables of the Grid Engine job in which this process runs, if any.
    """
    names = host.variable_names()
    of_job = (name for name in names if name.startswith("SGE_") or name in _JOB_VARIABLES)
    return {**hidden_secrets(host), **dict.fromkeys(of_job)}


def _job_id(output: str) -> str:
    """Return the id in the output of ``qsub -terse``, such as ``17.1-4:1``.

    Raises:
        SgeError: There is no id.
    """
    lines = output.split("\n")
    ids = [line.partition(".")[0].strip() for line in lines]
    found = next((job for job in reversed(ids) if job.isdigit()), "")
    if not found:
        raise SgeError(f"qsub printed no job id, but {output.strip()!r}")
    return found
