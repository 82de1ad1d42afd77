"""Cancel an app unless one of its jobs has started.

A cancellation alone may end a job that has started since the last query. A held job cannot start,
so this module holds the jobs, and then checks that all of them wait.
"""

from __future__ import annotations

from torchx_kit.batch.entries import Entry
from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.states import JobInfo, Phase
from torchx_kit.batch.system import BatchSystem
from torchx_kit.jobs.records import JobRecord

# How long to wait until the listing shows the effect of a hold, in seconds. If the system
# dispatched the job just before, the state changes only once the job's machine has answered.
_EFFECT_SECONDS = 20.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


def withdraw(system: BatchSystem, entry: Entry) -> bool:
    """Cancel the jobs of an app if none of them has started; return whether they were cancelled.

    Args:
        system: The batch system.
        entry: The app's index entry, with the ids of its jobs.

    Raises:
        BatchError: The batch system does not hold the jobs, or cannot be reached.
    """
    record = JobRecord(system.host, entry.record)
    may_be_held = record.begin_withdrawal()
    is_held = not record.has_begun() and _hold_unless_started(system, entry)
    # A job may have run and been requeued before it was held.
    if is_held and not record.has_begun():
        system.cancel(_ids(system, entry))
        record.end_withdrawal()
        return True
    if is_held or may_be_held:
        system.release(_ids(system, entry))
    record.end_withdrawal()
    return False


def _ids(system: BatchSystem, entry: Entry) -> list[str]:
    """Return the ids with which commands address the jobs: the job's, or an element's."""
    if entry.element is not None:
        return [system.job_of_replica(entry, 0, 0)]
    return entry.jobs


def _hold_unless_started(system: BatchSystem, entry: Entry) -> bool:
    """Hold the jobs of an app, and return whether none has started.

    If a job has started between the first query and the hold, the jobs are released.
    """
    if not _wait_for_start(system, _own_jobs(system, entry)):
        return False
    system.hold(_ids(system, entry))
    deadline = system.clock() + _EFFECT_SECONDS
    pause = _FIRST_PAUSE
    while True:
        jobs = _own_jobs(system, entry)
        has_effect = all(system.phase_of(job) is Phase.HELD for job in jobs)
        has_started = not _wait_for_start(system, jobs)
        if has_effect or has_started or system.clock() > deadline:
            break
        system.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    if has_effect and not has_started:
        return True
    system.release(_ids(system, entry))
    if not has_started:
        raise BatchError(f"{system.title} does not hold the jobs of {entry.app_id}; try again")
    return False


def _own_jobs(system: BatchSystem, entry: Entry) -> list[JobInfo]:
    """Return the jobs and tasks of an app; a job that has left the queue has no state."""
    listed, _ = system.listing(entry.jobs)
    ids = [
        system.job_of_replica(entry, number, k)
        for number, role in enumerate(entry.roles)
        for k in range(role.num_replicas)
    ]
    return [listed.get(job_id) or JobInfo(job_id) for job_id in ids]


def _wait_for_start(system: BatchSystem, jobs: list[JobInfo]) -> bool:
    """Return whether all jobs wait, and the system has never started one of them."""
    return bool(jobs) and all(
        system.phase_of(job).is_waiting and not (job.was_requeued or job.started) for job in jobs
    )
