"""Submit an app as one job for each replica, or an array of apps as one job.

The app is in the index before LSF gets its first job, and the script calls bsub in the background.
So an interrupted client loses no job: the submission completes, or all its jobs are killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from torchx_kit.hosts.client import if_slower
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.jobs.submission import withdraw
from torchx_kit.jobs.submitter import this_process
from torchx_kit.secrets import hidden_secrets
from torchx_sched_lsf.client import LimitError, Lsf, LsfError, UnreachableError
from torchx_sched_lsf.job_files.records import SCRIPT, Entry, Index, LsfRecord, RoleEntry
from torchx_sched_lsf.names import role_names
from torchx_sched_lsf.queue.kill import kill_jobs
from torchx_sched_lsf.queue.queries import jobs_of_app
from torchx_sched_lsf.request import LsfArray, LsfBsub
from torchx_specs.errors import BackendError, RequestError

# Part of bsub's message, in lower case, while too many jobs are pending.
_THRESHOLD = "job threshold reached"
# Log a warning if the submission takes longer than this, in seconds.
_SILENT_SECONDS = 8.0
# How long to wait for the end of a submission that was interrupted, in seconds.
_INTERRUPTED_SECONDS = 15.0

logger = logging.getLogger(__name__)


def submit(
    lsf: Lsf, request: LsfBsub, app_id: str, name: str, index: Index, names: Sequence[str] = ()
) -> Entry:
    """Submit an app or an array of apps, add it to the index, and return its entry.

    Args:
        lsf: The client.
        request: The app or array.
        app_id: The app's id.
        name: The app's name.
        index: The index.
        names: The names of the elements' apps if the request is an array.

    Raises:
        LimitError: LSF refuses the array because too many jobs are pending.
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
    short = role_names(role.name for role in request.app.roles)
    roles = [
        RoleEntry(role.name, short[role.name], [""] * role.num_replicas)
        for role in request.app.roles
    ]
    entry = Entry(
        app_id, name, folder, roles, time.time(), submitter=this_process(), names=list(names)
    )
    record = LsfRecord(host, entry)
    path = record.create(SCRIPT, request.materialize(), option="jobdir")
    for file_name, text in request.files() if isinstance(request, LsfArray) else ():
        record.create(file_name, text, option="jobdir")
    index.announce(entry)
    replicas = sum(len(role.jobs) for role in roles)
    try:
        with _warning_of_silence(record, replicas):
            # jobs inherit the environment of the script, so do not set LC_ALL for it
            env = hidden_secrets(host)
            lsf.run(*request.cmd, path, timeout=entry.submission_seconds, env=env)
    except UnreachableError as e:
        _undo(lsf, record, entry, index)
        raise UnreachableError(
            f"{e}; LSF may have accepted jobs all the same: bjobs -J '{app_id}-*' lists them, and"
            f" torchx cancel lsf://torchx/{app_id} ends them"
        ) from None
    except LsfError as e:
        if record.submission() == "cancelled":
            _undo(lsf, record, entry, index)
            raise LsfError(f"the submission of {app_id} was cancelled") from None
        _kill_jobs(lsf, app_id)
        record.remove()
        index.withdraw(app_id)
        if "bsub: command not found" in str(e):
            raise LsfError(lsf.not_installed.format(name="bsub")) from None
        kind = LimitError if _THRESHOLD in str(e).lower() else LsfError
        # the error contains the messages of bsub, which the script prints
        raise kind(f"bsub: {str(e).removeprefix('/bin/bash: ')}") from None
    except BaseException:  # Ctrl-C
        _undo(lsf, record, entry, index)
        raise
    record.read_jobs(entry)
    index.put(entry)
    return entry


def _warning_of_silence(record: LsfRecord, replicas: int) -> AbstractContextManager[None]:
    """Return a context manager that warns once if the submission is slow, with bsub's message."""

    def warn() -> None:
        try:
            accepted = record.text("jobs").count("\n")
            lines = record.text("bsub.err").strip().split("\n")
        except BackendError:
            return
        logger.warning(
            "LSF has accepted %d of %d jobs within %g s; bsub waits%s",
            accepted,
            replicas,
            _SILENT_SECONDS,
            f": {lines[-1]}" if lines[-1] else "",
        )

    return if_slower(_SILENT_SECONDS, warn)


def _undo(lsf: Lsf, record: LsfRecord, entry: Entry, index: Index) -> None:
    """End an interrupted submission and kill its jobs; the app stays in the index."""
    logger.warning("the submission of lsf://torchx/%s is interrupted: ending it", entry.app_id)
    entry.cancelled = True
    index.put(entry)
    record.cancel()
    deadline = lsf.clock() + _INTERRUPTED_SECONDS
    while not record.submission() and lsf.clock() < deadline:
        lsf.sleep(0.2)
    _kill_jobs(lsf, entry.app_id)
    record.read_jobs(entry)
    entry.interrupted = entry.complete and not entry.jobs
    index.put(entry)
    if entry.interrupted:
        withdraw()
    logger.warning(
        "the submission of lsf://torchx/%s was interrupted; %s",
        entry.app_id,
        f"its {len(entry.jobs)} submitted jobs are killed"
        if entry.complete
        else "LSF may still accept jobs: to end them, cancel the app",
    )


def _kill_jobs(lsf: Lsf, app_id: str) -> None:
    """Kill the jobs of an app that have not ended, if LSF answers."""
    try:
        jobs = jobs_of_app(lsf, app_id)
        kill_jobs(lsf, jobs, among=jobs)
    except LsfError as e:
        logger.debug("cannot kill the jobs of %s: %s", app_id, e)
