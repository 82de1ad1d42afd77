"""Submission of an app: a job for each replica, or none at all."""

from __future__ import annotations

import time
from dataclasses import replace

from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.records import JobRecord
from torchx_sched_lsf.client import Lsf, LsfError, UnreachableError
from torchx_sched_lsf.names import role_names
from torchx_sched_lsf.queries import jobs_of_project
from torchx_sched_lsf.records import SCRIPT, Entry, RoleEntry, record_path
from torchx_sched_lsf.request import LsfBsub
from torchx_specs.errors import RequestError

# Time limit of the script, which calls bsub once for each replica.
_TIMEOUT_SECONDS = 600.0


def submit(lsf: Lsf, request: LsfBsub, app_id: str) -> Entry:
    """Submit an app.

    Args:
        lsf: The client.
        request: The app.
        app_id: The app's id.

    Returns:
        An entry for the index.

    Raises:
        LsfError: LSF refuses a job, or cannot be reached.
        RequestError: The app's directory is not writable.
    """
    host = lsf.host
    request = replace(request, app_id=app_id)
    folder = request.jobdir or host.resolve()
    try:
        host.make_dirs(folder)
    except HostFileError as e:
        raise RequestError(f"option jobdir: {e}") from None
    record = JobRecord(host, record_path(folder, app_id))
    path = record.create(SCRIPT, request.materialize(), option="jobdir")
    try:
        # jobs inherit the environment of the script, so do not set LC_ALL for it
        output = lsf.run(*request.cmd, path, timeout=_TIMEOUT_SECONDS, env={})
    except UnreachableError as e:
        _kill_jobs(lsf, app_id)
        raise UnreachableError(
            f"{e}; LSF may have accepted jobs all the same: bjobs -P {app_id} lists them"
        ) from None
    except LsfError as e:
        record.remove()
        # the error contains the messages of bsub, which the script prints
        raise LsfError(f"bsub: {str(e).removeprefix('/bin/bash: ')}") from None
    names = role_names(role.name for role in request.app.roles)
    roles = [RoleEntry(role.name, names[role.name], []) for role in request.app.roles]
    for line in output.split("\n"):
        fields = line.split()
        if fields[:1] == ["submitted"]:
            roles[int(fields[1])].jobs.append(fields[3])
    return Entry(app_id, request.app.name, folder, submitted=time.time(), roles=roles)


def _kill_jobs(lsf: Lsf, app_id: str) -> None:
    """Kill the jobs of an app if LSF answers."""
    try:
        jobs = [job.job_id for job in jobs_of_project(lsf, app_id)]
        if jobs:
            lsf.run("bkill", *jobs)
    except LsfError:
        pass  # the error of the submission explains how to find the jobs
