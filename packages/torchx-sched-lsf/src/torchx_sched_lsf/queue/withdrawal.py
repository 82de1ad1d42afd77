"""Keep pending jobs from starting, so that they can be killed before they run.

``bkill`` alone may end a job that has started since the last query. ``bstop`` sets a pending job to
PSUSP, and LSF starts no job in this state. ``bstop`` sets a running job to USUSP. So this module
stops a pending job, queries the job's state, and resumes the job if the state is USUSP.
"""

from __future__ import annotations

from torchx_sched_lsf.client import Lsf, LsfError, UnreachableError
from torchx_sched_lsf.queue.queries import Job, jobs_by_id

# How long to wait until bjobs shows the effect of bstop, in seconds. If LSF dispatched the job just
# before, the state changes only once the job's host has answered.
_EFFECT_SECONDS = 20.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


def hold_unless_started(lsf: Lsf, job_id: str) -> bool | None:
    """Hold a job unless it has started; return True if it is held, and False if it has started.

    Return False also for a job that has ended, and None if LSF does not list the job. A job that
    ran and was requeued is held, too, so the caller must find out whether the job has run.

    Args:
        lsf: The client.
        job_id: The job, or an element of an array.

    Raises:
        LsfError: LSF cannot be reached, or does not hold the pending job.
    """
    job = _query(lsf, job_id)
    if job is None:
        return None
    if job.stat != "PEND":
        return job.stat == "PSUSP"
    refusal = _signal(lsf, "bstop", job_id)
    deadline = lsf.clock() + _EFFECT_SECONDS
    pause = _FIRST_PAUSE
    while job is not None and job.stat in ("PEND", "RUN") and lsf.clock() < deadline:
        job = _query(lsf, job_id)
        if refusal:
            break
        if job is not None and job.stat in ("PEND", "RUN"):
            lsf.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
    if job is None:
        return None
    if job.stat == "PEND":
        raise LsfError(f"LSF does not hold the pending job {job_id}: {refusal or 'no reason'}")
    if job.stat == "PSUSP":
        return True
    if not job.has_ended and not refusal:
        release(lsf, job_id)
    return False


def release(lsf: Lsf, job_id: str) -> None:
    """Resume a stopped job. A refusal of LSF, for example if the job has ended, is ignored.

    Raises:
        UnreachableError: LSF cannot be reached.
    """
    _signal(lsf, "bresume", job_id)


def _query(lsf: Lsf, job_id: str) -> Job | None:
    return jobs_by_id(lsf, [job_id]).get(job_id)


def _signal(lsf: Lsf, command: str, job_id: str) -> str:
    """Run ``bstop`` or ``bresume``, and return LSF's refusal, or an empty string."""
    try:
        lsf.run_idempotent(command, job_id)
    except UnreachableError:
        raise
    except LsfError as e:
        return str(e)
    return ""
