"""What SageMaker says of training jobs, in our words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState

#: States of training jobs; while a job is in progress, its secondary status says more.
JOB_STATE: dict[str, AppState] = {
    "InProgress": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Stopping": AppState.CANCELLED,
    "Stopped": AppState.CANCELLED,
    "Deleting": AppState.CANCELLED,
}
#: Secondary statuses in which no container runs yet, or none any more.
_WAITING = frozenset(
    {
        *("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack"),
        *("Downloading", "DownloadingTrainingImage", "Interrupted", "Restarting"),
    }
)
#: Secondary statuses of jobs that were stopped by SageMaker and not by a user.
_TOO_LONG = frozenset({"MaxRuntimeExceeded", "MaxWaitTimeExceeded"})
_AGAIN = frozenset({"Interrupted", "Restarting"})
_EXIT_CODE = re.compile(r"exit ?code:? *(\d+)", re.IGNORECASE)


def job_state(status: str, secondary: str) -> AppState:
    """Returns the state of a job.

    A job that is being stopped runs until it has been.

    Args:
        status: ``TrainingJobStatus``
        secondary: ``SecondaryStatus``, empty if unknown
    """
    if secondary in _TOO_LONG:
        return AppState.FAILED
    if status == "Stopping":
        return AppState.RUNNING
    if status == "InProgress" and secondary in _WAITING:
        return AppState.PENDING
    return JOB_STATE.get(status, AppState.UNKNOWN)


def restarts_of(job: Mapping[str, Any]) -> int:
    """Returns how often a job was started again."""
    transitions = job.get("SecondaryStatusTransitions") or ()
    return sum(1 for item in transitions if item.get("Status") in _AGAIN)


def reason_of(job: Mapping[str, Any]) -> str:
    """Returns why a job is in its state, empty if there is nothing to say."""
    reason = one_line(job.get("FailureReason") or "")
    secondary = str(job.get("SecondaryStatus") or "")
    if reason and secondary in _TOO_LONG:
        return f"{secondary}: {reason}"
    if reason:
        return reason
    if job.get("TrainingJobStatus") == "Completed":
        return ""
    transitions = job.get("SecondaryStatusTransitions") or ()
    said = one_line(transitions[-1].get("StatusMessage") or "") if transitions else ""
    return f"{secondary}: {said}" if said else secondary


def exit_code_of(job: Mapping[str, Any]) -> int | None:
    """Returns the exit code of a job's containers, None if unknown."""
    if job.get("TrainingJobStatus") == "Completed":
        return 0
    found = _EXIT_CODE.search(str(job.get("FailureReason") or ""))
    return int(found[1]) if found else None
