"""Kill jobs with bkill."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_sched_lsf.client import Lsf, LsfError, UnreachableError
from torchx_sched_lsf.queue.queries import Job

# How many ids one call of bkill gets at most: a command line has a limited length.
_MOST_IDS = 1000
# Parts of bkill's messages, in lower case, for jobs that have ended.
_ENDED = ("already finished", "not found", "no matching job")


def kill_jobs(lsf: Lsf, jobs: Iterable[Job], among: Iterable[Job] | None = None) -> None:
    """Kill the given jobs, except jobs that have ended.

    Args:
        lsf: The client.
        jobs: The jobs.
        among: All elements of the arrays to which ``jobs`` belong. If ``jobs`` contains all
            unfinished elements of an array, the array's id replaces their ids. None means that the
            other elements are unknown, so every job is killed by its own id.

    Raises:
        LsfError: LSF cannot be reached, or refuses to kill a job.
    """
    unfinished = {job.job_id for job in jobs if not job.has_ended}
    spared = {job.number for job in among or () if not (job.has_ended or job.job_id in unfinished)}
    ids = unfinished
    if among is not None:
        ids = {
            job_id if number in spared else number
            for job_id in unfinished
            for number in [job_id.partition("[")[0]]
        }
    chosen = sorted(ids)
    # Without ids, bkill is not called: it would kill the user's last job.
    for start in range(0, len(chosen), _MOST_IDS):
        try:
            lsf.run("bkill", *chosen[start : start + _MOST_IDS])
        except UnreachableError:
            raise
        except LsfError as e:
            if not any(text in str(e).lower() for text in _ENDED):
                raise
