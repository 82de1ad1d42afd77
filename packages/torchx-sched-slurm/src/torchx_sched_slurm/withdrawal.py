"""Hold jobs that have not started, so that they can be cancelled safely.

``scancel --state=PENDING`` is not safe: it queries the state before it sends the request, so it may
end a job that has started in between. A held job cannot start, so this module holds a job and then
checks its state; the scheduler cancels the job if it is held.
"""

from __future__ import annotations

from torchx_sched_slurm.jobs import JobId
from torchx_sched_slurm.system import Slurm

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
        BatchError: Slurm cannot be reached.
    """
    slurm.hold([str(job_id)])
    job = slurm.show(job_id)
    if not job:
        return None
    if job.get("Restarts", "0") != "0":
        has_started = True  # Slurm has requeued the job
    elif job.get("JobState") == "PENDING":
        return True
    else:
        has_started = job.get("NodeList", "") not in _NO_NODES or "BatchHost" in job
    if has_started and job.get("Priority") == "0":
        # The hold of a started job would take effect when Slurm requeues it, so release the job.
        slurm.release([str(job_id)])
    return not has_started
