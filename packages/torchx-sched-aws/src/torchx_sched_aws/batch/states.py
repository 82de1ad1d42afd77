"""Batch's states and reasons, in ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_kit.signals import describe_exit, process_exit_code
from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, is_terminal

#: Batch's states.
JOB_STATE: dict[str, AppState] = {
    "SUBMITTED": AppState.PENDING,
    "PENDING": AppState.PENDING,
    "RUNNABLE": AppState.PENDING,
    "STARTING": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
}

#: What a job that was cancelled says of itself ...
CANCELLED = "cancelled by TorchX"
#: ... and one that was deleted while it ran.
DELETED = "deleted by TorchX"
#: Reasons that mean it was cancelled; the last one is upstream's.
_CANCELS = (CANCELLED, DELETED, "killed via torchx CLI")

# What a job waits for while Batch gives no reason.
_WAITING = {
    "PENDING": "waits for the jobs it depends on",
    "RUNNABLE": "waits for a machine",
    "STARTING": "the container starts",
}


def job_state(job: Mapping[str, Any]) -> AppState:
    """Returns the state of a job, or of one of its nodes."""
    state = JOB_STATE.get(str(job.get("status")), AppState.UNKNOWN)
    if state == AppState.FAILED and was_cancelled(job):
        return AppState.CANCELLED
    return state


def was_cancelled(job: Mapping[str, Any]) -> bool:
    """Returns True if somebody has ended the job."""
    return bool(
        job.get("isTerminated")
        or job.get("isCancelled")
        or str(job.get("statusReason") or "") in _CANCELS
    )


def was_deleted(job: Mapping[str, Any], mark: str) -> bool:
    """Returns True if the job counts as deleted.

    Args:
        job: a job, or a summary of one
        mark: the tag that says so
    """
    return job.get("statusReason") == DELETED or mark in (job.get("tags") or {})


def has_failed_by_itself(node: Mapping[str, Any]) -> bool:
    """Returns True if a node has failed, and was not only stopped because the job was over."""
    if job_state(node) != AppState.FAILED:
        return False
    code = exit_code(node)
    if code is None:
        return bool((node.get("container") or {}).get("reason"))
    return code not in (0, -9, -15)


def exit_code(job: Mapping[str, Any]) -> int | None:
    """Returns the exit code of a job's or node's container, negative for a signal."""
    code = (job.get("container") or {}).get("exitCode")
    if code is None and job.get("attempts"):
        code = (job["attempts"][-1].get("container") or {}).get("exitCode")
    return None if code is None else process_exit_code(int(code))


def reason_of(job: Mapping[str, Any]) -> str:
    """Returns why a job or a node is in its state, empty if there is nothing to say."""
    state = job_state(job)
    said = []
    container = job.get("container") or {}
    attempts = job.get("attempts") or [{}]
    last = attempts[-1]
    if state != AppState.SUCCEEDED:
        for text in (
            job.get("statusReason"),
            container.get("reason"),
            (last.get("container") or {}).get("reason") if is_terminal(state) else None,
        ):
            words = one_line(text or "")
            if words and words not in said:
                said.append(words)
    if state == AppState.PENDING and not said:
        said.append(_WAITING.get(str(job.get("status")), ""))
    if state == AppState.FAILED:
        code = exit_code(job)
        said.append(describe_exit(code or 0))
    return "; ".join(filter(None, said))


def restarts(job: Mapping[str, Any]) -> int:
    """Returns how often a job was started again."""
    ended = sum(1 for attempt in job.get("attempts") or () if attempt.get("stoppedAt"))
    return max(0, ended - 1 if is_terminal(job_state(job)) else ended)
