"""States, reasons and exit codes of Batch jobs and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx_kit.jobs.pending_reasons import explained
from torchx_kit.signals import describe_exit, process_exit_code
from torchx_kit.times import moment
from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, is_terminal

#: AppState for each status of a Batch job.
JOB_STATE: dict[str, AppState] = {
    "SUBMITTED": AppState.PENDING,
    "PENDING": AppState.PENDING,
    "RUNNABLE": AppState.PENDING,
    "STARTING": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
}

#: Statuses of a job that has ended.
ENDED = ("SUCCEEDED", "FAILED")

#: Statuses of a Batch job whose containers do not exist yet.
WAITING = ("SUBMITTED", "PENDING", "RUNNABLE")
#: Tag that marks deleted jobs, because Batch itself keeps ended jobs for days.
TAG_DELETED = "torchx.pytorch.org/deleted"
#: Reason that TorchX gives when it cancels a job.
CANCELLED = "cancelled by TorchX"
#: Reason that TorchX gives when it deletes a job that has not ended.
DELETED = "deleted by TorchX"
# Reasons of cancelled jobs; upstream's TorchX gives the last one.
_CANCELS = (CANCELLED, DELETED, "killed via torchx CLI")

# Explanations of states for which Batch gives no reason.
_EXPLANATIONS = {
    "PENDING": "waiting for the jobs that it depends on",
    "RUNNABLE": "waiting for an instance",
    "STARTING": "starting the container",
}

# Patterns of the reasons that Batch gives for waiting jobs, with their meanings and remedies.
_PENDING = (
    (
        r"CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY|Insufficient ?Capacity",
        "AWS has no free instance of this type now",
        "wait, or allow more instance types or zones in the compute environment",
    ),
    (
        r"MISCONFIGURATION:(COMPUTE_ENVIRONMENT_MAX_RESOURCE|JOB_RESOURCE_REQUIREMENT)",
        "the job requests more than the compute environments of its queue can have",
        "request less, raise maxvCpus or add larger instance types, or use another queue",
    ),
    (
        r"MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS",
        "the service role of AWS Batch lacks a right",
        "ask the administrators to repair the role",
    ),
    (
        r"MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED",
        "the compute environment cannot start its instances",
        "ask the administrators to repair its instance types or launch template",
    ),
    (
        r"ACTION_REQUIRED\b",
        "the compute environments of the queue are invalid",
        "ask the administrators to repair them, or use another queue",
    ),
    (
        r"UNDETERMINED\b",
        "the queue is blocked, and AWS Batch does not know why",
        "check the instances, roles and network of the compute environment",
    ),
    (
        r"waiting for an instance",
        "AWS Batch starts or waits for an instance",
        "wait a few minutes; then compare the request with the compute environment",
    ),
)


def job_state(job: Mapping[str, Any]) -> AppState:
    """Return the state of a job or node.

    Batch reports an array job as PENDING until all children have ended. This function returns
    RUNNING once a child runs or has ended.
    """
    state = JOB_STATE.get(str(job.get("status")), AppState.UNKNOWN)
    children = (job.get("arrayProperties") or {}).get("statusSummary") or {}
    if job.get("status") == "PENDING" and any(map(children.get, ("RUNNING", *ENDED))):
        return AppState.RUNNING
    was_cancelled = (
        job.get("isTerminated") or job.get("isCancelled") or job.get("statusReason") in _CANCELS
    )
    return AppState.CANCELLED if state == AppState.FAILED and was_cancelled else state


def was_deleted(job: Mapping[str, Any]) -> bool:
    """Return whether a user deleted the job."""
    return job.get("statusReason") == DELETED or TAG_DELETED in (job.get("tags") or {})


def has_failed_by_itself(node: Mapping[str, Any]) -> bool:
    """Return whether a node failed by itself, not because Batch stopped it when the job ended."""
    if job_state(node) != AppState.FAILED:
        return False
    code = exit_code(node)
    if code is None:
        return bool((node.get("container") or {}).get("reason"))
    return code not in (0, -9, -15)


def exit_code(job: Mapping[str, Any]) -> int | None:
    """Return the exit code of a job or node, negative for a signal; None if unknown."""
    code = (job.get("container") or {}).get("exitCode")
    if code is None and job.get("attempts"):
        code = (job["attempts"][-1].get("container") or {}).get("exitCode")
    return None if code is None else process_exit_code(int(code))


def time_of(job: Mapping[str, Any], name: str) -> datetime | None:
    """Return a time of a job or node, or None if Batch does not report it.

    Args:
        job: The job or node; Batch reports its times in milliseconds since 1970.
        name: The field: ``createdAt``, ``startedAt`` or ``stoppedAt``.
    """
    milliseconds = job.get(name)
    return None if milliseconds is None else moment(milliseconds / 1000)


def ended_at(job: Mapping[str, Any], node: Mapping[str, Any]) -> float | None:
    """Return the end of a node in seconds since 1970, or None while the node may still run.

    Return 0.0 if the node has ended at an unknown time.
    """
    last = job
    if not is_terminal(job_state(job)):
        # An ended node starts again if the job is retried.
        is_retried = int((job.get("retryStrategy") or {}).get("attempts") or 1) > 1
        if is_retried or not is_terminal(job_state(node)):
            return None
        last = node
    return float(last.get("stoppedAt") or 0) / 1000


def state_reason(job: Mapping[str, Any]) -> str:
    """Return why a job or node is in its state; an empty string if Batch gives no reason."""
    state = job_state(job)
    texts = [job.get("statusReason"), (job.get("container") or {}).get("reason")]
    if is_terminal(state):
        attempts = job.get("attempts") or [{}]
        texts.append((attempts[-1].get("container") or {}).get("reason"))
    reasons = list(dict.fromkeys(one_line(text) for text in texts if text))
    if state == AppState.SUCCEEDED:
        return ""
    if state == AppState.PENDING:
        reasons = reasons or [_EXPLANATIONS.get(str(job.get("status")), "")]
        reasons = [explained(reason, _PENDING) for reason in reasons]
    if state == AppState.FAILED:
        code = exit_code(job)
        reasons.append(describe_exit(code or 0))
    return "; ".join(filter(None, reasons))


def started_attempts(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the attempts of a job or node, the running one included.

    The field ``attempts`` has those that have ended. A job is ``RUNNING`` until Batch has noted
    that its last attempt has ended, so the running one has another start than the last of them.
    """
    found = list(job.get("attempts") or ())
    running = {"startedAt": job.get("startedAt")}
    if job.get("status") == "RUNNING" and (
        not found or running["startedAt"] != found[-1].get("startedAt")
    ):
        found.append(running)
    return found


def restart_count(job: Mapping[str, Any]) -> int:
    """Return how many times a job or node was restarted; a retry that waits is no restart yet."""
    return max(0, len(started_attempts(job)) - 1)


def definition_name(job: Mapping[str, Any]) -> str:
    """Return the name of a job's definition, without its revision."""
    name = str(job.get("jobDefinition") or "").rpartition("job-definition/")[2]
    return name.partition(":")[0]
