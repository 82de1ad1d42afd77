"""The states of HTCondor's jobs, and the causes of their ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_kit.batch.states import Cause, JobState, Phase
from torchx_specs.model.status import AppState

#: The states that :func:`state_name` returns.
STATES = {
    "idle": JobState(Phase.WAITING),
    "not made yet": JobState(Phase.WAITING, "as many elements run as may run at the same time"),
    "held": JobState(Phase.WAITING, "held; condor_release releases it"),
    "held by a policy": JobState(
        Phase.WAITING, "held: somebody must act, with condor_release or condor_rm"
    ),
    "held by an error": JobState(Phase.ERROR),
    "running": JobState(Phase.RUNNING),
    "disconnected": JobState(Phase.RUNNING, "its machine does not answer"),
    "transferring output": JobState(Phase.RUNNING),
    "suspended": JobState(Phase.STOPPED, "suspended"),
    "being removed": JobState(Phase.RUNNING, "HTCondor is removing it"),
    "removed": JobState(Phase.CANCELLED),
    "completed": JobState(Phase.SUCCEEDED),
    "failed": JobState(Phase.FAILED),
}

#: Why HTCondor removes jobs, by the beginning of the attribute ``RemoveReason``.
CAUSES = {
    "The job attribute PeriodicRemove": Cause(
        AppState.FAILED, "the limit of the run time (option time) was reached"
    ),
    "The job attribute": Cause(AppState.FAILED, "an expression of the job removed it"),
    "The system macro": Cause(AppState.FAILED, "a rule of the pool removed it"),
    "removed": Cause(AppState.CANCELLED, "removed"),
}

_IDLE, _RUNNING, _REMOVED, _COMPLETED, _HELD, _TRANSFERRING, _SUSPENDED = range(1, 8)
# Values of HoldReasonCode. The manual lists them below "Job ClassAd Attributes".
_BY_USER = (1, 15, 16)
_START_ERRORS = (6, 7, 8, 11, 12, 13, 14, 28, 32, 43)


def state_name(ad: Mapping[str, Any]) -> str:
    """Return the state of a job.

    Args:
        ad: Attributes of the job in the queue or in the history.
    """
    status = ad.get("JobStatus")
    if status == _HELD:
        code = ad.get("HoldReasonCode")
        if code in _BY_USER:
            return "held"
        return "held by an error" if code in _START_ERRORS else "held by a policy"
    if status == _REMOVED:
        return "being removed" if ad.get("RemoteHost") else "removed"
    if status == _COMPLETED:
        is_clean = not ad.get("ExitBySignal") and not ad.get("ExitCode")
        return "completed" if is_clean else "failed"
    if status == _RUNNING:
        since, lost = ad.get("JobCurrentStartDate") or 0, ad.get("JobDisconnectedDate") or 0
        return "disconnected" if lost > since else "running"
    names = {_IDLE: "idle", _TRANSFERRING: "transferring output", _SUSPENDED: "suspended"}
    return names.get(status or 0, str(status))


def cause_of(ad: Mapping[str, Any]) -> str:
    """Return the key of :data:`CAUSES` for a job in the history; empty if it ended by itself."""
    if ad.get("JobStatus") != _REMOVED:
        return ""
    reason = str(ad.get("RemoveReason") or "")
    return next((cause for cause in CAUSES if reason.startswith(cause)), "removed")
