"""Submit the jobs of an app, all or none.

If there are several jobs, the batch system holds them until it has accepted the last one. If it
refuses a job, the held jobs are deleted. The entry in the index has the submitting process
(:mod:`torchx_kit.jobs.submitter`), so that other clients complete or undo the submission if that
process was killed.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterator, Sequence

from torchx_kit.batch.entries import Entry, Index
from torchx_kit.batch.errors import BatchError, UnreachableError
from torchx_kit.batch.request import BatchRequest
from torchx_kit.batch.script import VARIABLES
from torchx_kit.batch.system import BatchSystem, NativeJob
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.hosts.operations import MakeDirs, Operation, Run, Write
from torchx_kit.jobs.records import JobRecord
from torchx_kit.jobs.submission import announce, withdraw
from torchx_kit.secrets import own_secrets
from torchx_specs.errors import RequestError

# Writes the exported variables to the file $1, readable by the user alone.
_SAVE_VARIABLES = 'umask 077 && export -p > "$1"'

#: The file of a record with the results of commands that submit jobs through a connection.
SUBMISSION = "submission"

logger = logging.getLogger(__name__)


def submit(request: BatchRequest, index: Index) -> Entry:
    """Submit an app or an array of apps, add it to the index, and return its entry.

    Args:
        request: The app or array.
        index: The index.

    Raises:
        BatchError: The batch system refuses a job, or cannot be reached.
        RequestError: The app's directory is not writable.
    """
    system = request.system
    system.prepare()
    folder = request.folder or system.host.resolve()
    jobs = request.jobs(folder)
    entry = request.entry(folder, jobs)
    index.put(entry)
    announce(entry.app_id)
    try:
        _run(request, entry, [job for own in jobs for job in own])
    except HostFileError as e:
        _forget(index, system, entry)
        raise RequestError(
            f"{e}; set the option {system.folder_option} to a directory that you and the nodes can"
            " write to"
        ) from None
    except UnreachableError as e:
        _undo(system, entry, index)
        raise UnreachableError(
            f"{e}; {system.title} may have accepted jobs:"
            f" torchx cancel {system.backend}://torchx/{entry.app_id} deletes them"
        ) from None
    except BatchError:
        if _undo(system, entry, index):
            _forget(index, system, entry)
        raise
    except BaseException:  # Ctrl-C
        _undo(system, entry, index)
        raise
    return index.confirm(entry)


def _run(request: BatchRequest, entry: Entry, jobs: Sequence[NativeJob]) -> None:
    """Write the record, submit the jobs, and set their ids in the entry."""
    system = request.system
    hidden = request.hidden_variables()
    folder = posixpath.dirname(posixpath.dirname(entry.record))
    operations: list[Operation] = [MakeDirs(folder), MakeDirs(entry.record, 0o700)]
    files = request.files(entry.record)
    operations += [Write(posixpath.join(entry.record, name), text) for name, text in files]
    operations += _secret_files(request, entry.record) if system.host.name else []
    if not system.passes_environment and request.cfg.inherit_env:
        path = posixpath.join(entry.record, VARIABLES)
        operations.append(Run(["/bin/bash", "-c", _SAVE_VARIABLES, "bash", path], env=hidden))
    commands = [system.submission_command(job, hidden) for job in jobs]
    once = posixpath.join(entry.record, SUBMISSION)
    ids = iter(system.submit_jobs(operations, commands, once))
    for role in entry.roles:
        role.jobs = [next(ids) for _ in role.jobs]
    if entry.held:
        system.release(entry.jobs)


def _secret_files(request: BatchRequest, record: str) -> Iterator[Operation]:
    """Yield the operations that write secrets of this machine to the record on another one.

    The job reads other secrets from the directory of secrets there.
    """
    secrets = own_secrets(request.environments())
    if secrets:  # containers mount the directory of secrets
        yield MakeDirs(request.system.host.resolve("~/.torchx/secrets"), 0o700)
    for reference, value in secrets.items():
        path = posixpath.join(record, "secrets", *filter(None, reference))
        yield MakeDirs(posixpath.join(record, "secrets"), 0o700)
        yield MakeDirs(posixpath.dirname(path), 0o700)
        yield Write(path, value)


def finish_submission(system: BatchSystem, index: Index, entry: Entry) -> Entry:
    """Complete or undo a submission whose process was killed, and return the app's new entry.

    If all jobs were submitted, release them. Otherwise delete them, and record the app as
    cancelled, unless a job has started, because then all jobs were submitted. An entry whose
    submission has ended or may still continue is returned unchanged. But if one command submits the
    whole app, the submission is complete as soon as the system has the job.

    Args:
        system: The batch system.
        index: The index.
        entry: The app's index entry.

    Raises:
        BatchError: The batch system refuses a request, or cannot be reached.
    """
    if entry.element is not None or entry.has_ended:
        return entry
    # The submission may have ended since the entry was read.
    entry = index.get(entry.app_id) or entry
    is_abandoned = entry.is_abandoned()
    if entry.has_ended or not (is_abandoned or system.is_atomic):
        return entry
    system.add_job_ids([entry], system.listing(None)[0].values())
    has_started = JobRecord(system.host, entry.record).has_begun()
    has_ids = all(job for role in entry.roles for job in role.jobs)
    handle = f"{system.backend}://torchx/{entry.app_id}"
    if has_ids:
        if entry.held and not has_started:
            system.release(entry.jobs)
        if is_abandoned:
            logger.warning("the submission of %s was interrupted, and is complete now", handle)
        return index.confirm(entry)
    if has_started or not is_abandoned:
        return entry  # a job that has left the queue, whose record shows how it ended
    system.cancel(entry.jobs)
    entry.cancelled, entry.interrupted = True, not entry.jobs
    logger.warning("the submission of %s was interrupted, so it is cancelled", handle)
    index.put(entry)
    return entry


def _forget(index: Index, system: BatchSystem, entry: Entry) -> None:
    """Remove the record and the entry of an app whose jobs were deleted.

    Some systems list deleted jobs. The entry then hides them, so that they are no app.
    """
    JobRecord(system.host, entry.record).remove()
    index.remove(entry.app_id)
    withdraw()
    if entry.jobs:
        entry.deleted = True
        index.put(entry)


def _undo(system: BatchSystem, entry: Entry, index: Index) -> bool:
    """Delete the jobs of an interrupted submission; the app stays in the index.

    Do nothing if one command submits the whole app.

    Returns:
        Whether all jobs were deleted. Otherwise, a warning was logged.
    """
    if system.is_atomic:
        return True
    entry.cancelled = True
    index.put(entry)
    try:
        system.add_job_ids([entry], system.listing(None)[0].values())
        system.cancel(entry.jobs)
    except BatchError as e:
        logger.warning(
            "cannot delete the jobs of %s://torchx/%s: %s; cancel the app to delete them",
            *(system.backend, entry.app_id, e),
        )
        return False
    index.put(entry)  # with the ids of the jobs that were found
    return True
