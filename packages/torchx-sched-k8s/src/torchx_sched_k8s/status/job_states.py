"""Read states, and the reasons for them, from Jobs and similar objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    ANNOTATION_ENDED,
    ANNOTATION_ROLE_NAME,
    LABEL_QUEUE,
    LABEL_ROLE_NAME,
    annotations_of,
    labels_of,
)
from torchx_sched_k8s.ending.withdrawal_progress import progress_of
from torchx_specs.model.status import AppState

#: Maps phases of Volcano Jobs to states.
VOLCANO_JOB_STATES: dict[str, AppState] = {
    "Pending": AppState.PENDING,
    "Aborting": AppState.RUNNING,
    "Aborted": AppState.CANCELLED,
    "Running": AppState.RUNNING,
    "Restarting": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Completing": AppState.RUNNING,
    "Terminating": AppState.RUNNING,
    "Terminated": AppState.FAILED,
    "Failed": AppState.FAILED,
}


def job_state(job: Mapping[str, Any]) -> tuple[AppState, str]:
    """Return the state of a Job, and the reason (empty if there is none)."""
    status, spec = job.get("status") or {}, job.get("spec") or {}
    true = true_conditions(job)
    if "Complete" in true:
        return AppState.SUCCEEDED, ""
    if ANNOTATION_CANCELLED in annotations_of(job):
        return AppState.CANCELLED, f"cancelled {annotations_of(job)[ANNOTATION_CANCELLED]}"
    if ANNOTATION_ENDED in annotations_of(job):
        return AppState.FAILED, f"ended because {annotations_of(job)[ANNOTATION_ENDED]}"
    withdrawal = progress_of(job)
    if "Failed" in true and withdrawal is not None and withdrawal.deleted:
        return AppState.CANCELLED, "withdrawn before a node was free"
    if "Failed" in true:
        return AppState.FAILED, condition_reason(true["Failed"])
    if spec.get("suspend"):
        return AppState.PENDING, suspension_reason(job)
    if status.get("ready") or {"FailureTarget", "SuccessCriteriaMet"} & true.keys():
        return AppState.RUNNING, ""
    if status.get("active"):
        return AppState.PENDING, ""
    # The Job controller first lists ended pods as uncounted. It completes the Job in a later
    # update, after it has removed the finalizers of these pods.
    if status.get("succeeded") or any((status.get("uncountedTerminatedPods") or {}).values()):
        return AppState.RUNNING, ""
    # a Job that was started has no active pod while a lost pod is being replaced
    return (AppState.PENDING if status.get("startTime") else AppState.SUBMITTED), ""


def failure_limit(spec: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return how many pods of a Job may fail, and whether each index has this limit of its own.

    The limit is None if a rule for exit codes may ignore a failure, or fail the Job earlier.

    Args:
        spec: Spec of the Job.
    """
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    each = spec.get("backoffLimitPerIndex")
    limit = spec.get("backoffLimit") if each is None else each
    if limit is None or any("onExitCodes" in rule for rule in rules):
        return None, False
    return int(limit), each is not None


def true_conditions(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return an object's conditions that have the status ``True``, by condition type."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return {c["type"]: c for c in conditions if c.get("status") == "True"}


def role_name_of(resource: Mapping[str, Any]) -> str:
    """Return the name of an object's role, as in the AppDef; empty if it is unknown."""
    found = annotations_of(resource).get(ANNOTATION_ROLE_NAME)
    return str(found or labels_of(resource).get(LABEL_ROLE_NAME) or "")


def condition_reason(condition: Mapping[str, Any]) -> str:
    """Return a condition's reason and message on one line."""
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    if reason == "PodFailurePolicy":
        # leave out the index of the rule: TorchX wrote the rule, not the user
        reason, message = "", str(message).partition(" matching FailJob")[0]
    return " ".join(": ".join(str(part) for part in (reason, message) if part).split())


def suspension_reason(resource: Mapping[str, Any]) -> str:
    """Return why an object is suspended."""
    queue = labels_of(resource).get(LABEL_QUEUE)
    return f"waiting in Kueue's queue {queue}" if queue else "suspended"
