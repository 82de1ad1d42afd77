"""States, reasons and exit codes of training jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, is_terminal

#: AppState for each status of a training job; :func:`job_state` also uses the secondary status.
JOB_STATE: dict[str, AppState] = {
    "InProgress": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Stopping": AppState.CANCELLED,
    "Stopped": AppState.CANCELLED,
    "Deleting": AppState.CANCELLED,
}
# Secondary statuses in which no container runs.
_PENDING = frozenset(
    {
        *("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack"),
        *("Downloading", "DownloadingTrainingImage", "Interrupted", "Restarting"),
    }
)
# Secondary statuses of jobs that SageMaker stopped because of a time limit.
_TIMED_OUT = frozenset({"MaxRuntimeExceeded", "MaxWaitTimeExceeded"})
_RESTARTED = frozenset({"Interrupted", "Restarting"})
_EXIT_CODE = re.compile(r"exit ?code:? *(\d+)", re.IGNORECASE)


def job_state(status: str, secondary: str) -> AppState:
    """Return the state of a training job; a job that is being stopped counts as running.

    Args:
        status: The job's ``TrainingJobStatus``.
        secondary: The job's ``SecondaryStatus``; empty if unknown.
    """
    if secondary in _TIMED_OUT:
        return AppState.FAILED
    if status == "Stopping":
        return AppState.RUNNING
    if status == "InProgress" and secondary in _PENDING:
        return AppState.PENDING
    return JOB_STATE.get(status, AppState.UNKNOWN)


def restart_count(job: Mapping[str, Any]) -> int:
    """Return how many times a training job was restarted.

    An interruption counts once the job trains again.
    """
    count = 0
    was_interrupted = False
    for item in job.get("SecondaryStatusTransitions") or ():
        status = item.get("Status")
        count += was_interrupted and status == "Training"
        was_interrupted = status in _RESTARTED or (was_interrupted and status != "Training")
    return count


def state_reason(job: Mapping[str, Any]) -> str:
    """Return why a training job is in its state; an empty string for a completed job."""
    reason = one_line(job.get("FailureReason") or "")
    secondary = str(job.get("SecondaryStatus") or "")
    if reason and secondary in _TIMED_OUT:
        return f"{secondary}: {reason}"
    if reason:
        return reason
    if job.get("TrainingJobStatus") == "Completed":
        return ""
    transitions = job.get("SecondaryStatusTransitions") or ()
    message = one_line(transitions[-1].get("StatusMessage") or "") if transitions else ""
    return f"{secondary}: {message}" if message else secondary


def exit_code(job: Mapping[str, Any]) -> int | None:
    """Return the exit code of a training job's containers, or None if unknown."""
    if job.get("TrainingJobStatus") == "Completed":
        return 0
    found = _EXIT_CODE.search(str(job.get("FailureReason") or ""))
    return int(found[1]) if found else None


def ended_at(job: Mapping[str, Any]) -> float | None:
    """Return the end of a training job in seconds since 1970, or None if it has not ended.

    Return 0.0 if the job has ended at an unknown time.
    """
    if not is_terminal(job_state(job["TrainingJobStatus"], str(job.get("SecondaryStatus") or ""))):
        return None
    when = job.get("TrainingEndTime") or job.get("LastModifiedTime")
    return when.timestamp() if isinstance(when, datetime) else 0.0
