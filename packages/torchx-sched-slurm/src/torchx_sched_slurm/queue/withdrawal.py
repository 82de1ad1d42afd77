"""Hold jobs that have not started, so that they can be cancelled safely.

``scancel --state=PENDING`` is not safe: it queries the state before it sends the request, so it may
end a job that has started in between. A held job cannot start, so this module holds a job and then
checks its state; the scheduler cancels the job if it is held.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchx_sched_slurm.client import Slurm
from torchx_sched_slurm.queue.queries import UNKNOWN_JOB, JobId

# Parts of scontrol's error messages for jobs that have ended, in lower case.
_ENDED = ("already finished", *UNKNOWN_JOB)
# Values of the field NodeList of a job that has no nodes.
_NO_NODES = ("", "(null)")


def hold_unless_started(slurm: Slurm, job_id: JobId) -> bool | None:
    """Hold a job unless it has started; return True if it is held, and False if it has started.

    Return True also for a job that has ended without a start. Return None if Slurm does not know
    the job any more.

    Args:
        slurm: The client.
        job_id: The job, or a task of an array.

    Raises:
        SlurmError: Slurm cannot be reached.
    """
    slurm.run_unless(_ENDED, "scontrol", *job_id.options(), "hold", job_id.selector)
    job = _fields(slurm, job_id)
    if job is None:
        return None
    if job.get("Restarts", "0") != "0":
        has_started = True  # Slurm has requeued the job
    elif job.get("JobState") == "PENDING":
        return True
    else:
        has_started = job.get("NodeList", "") not in _NO_NODES or "BatchHost" in job
    if has_started and job.get("Priority") == "0":
        # The hold of a started job would take effect when Slurm requeues it, so release the job.
        slurm.run_unless(_ENDED, "scontrol", *job_id.options(), "release", job_id.selector)
    return not has_started


def _fields(slurm: Slurm, job_id: JobId) -> Mapping[str, str] | None:
    """Return the fields of ``scontrol show job``, or None if Slurm does not know the job."""
    argv = ("scontrol", *job_id.options(), "show", "job", "-o", job_id.selector)
    output = slurm.run_unless(UNKNOWN_JOB, *argv)
    if output is None:
        return None
    return dict(re.findall(r"(?:^| )([A-Za-z/]+)=(\S*)", output.partition("\n")[0]))
