"""What a cluster says of a Job."""

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
from torchx_specs.model.status import AppState

#: States of Volcano's Jobs, by their phases.
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
    """Returns the state of a Job, and why."""
    status, spec = job.get("status") or {}, job.get("spec") or {}
    true = true_conditions(job)
    if "Complete" in true:
        return AppState.SUCCEEDED, ""
    if ANNOTATION_CANCELLED in annotations_of(job):
        return AppState.CANCELLED, f"cancelled {annotations_of(job)[ANNOTATION_CANCELLED]}"
    if ANNOTATION_ENDED in annotations_of(job):
        return AppState.FAILED, f"ended because {annotations_of(job)[ANNOTATION_ENDED]}"
    if "Failed" in true:
        return AppState.FAILED, words_of(true["Failed"])
    if spec.get("suspend"):
        return AppState.PENDING, suspended_words(job)
    if status.get("ready") or {"FailureTarget", "SuccessCriteriaMet"} & true.keys():
        return AppState.RUNNING, ""
    if status.get("active"):
        return AppState.PENDING, ""
    return (AppState.RUNNING if status.get("succeeded") else AppState.SUBMITTED), ""


def true_conditions(resource: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the conditions of an object that are true, by their types."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return {c["type"]: c for c in conditions if c.get("status") == "True"}


def role_name_of(resource: Mapping[str, Any]) -> str:
    """Returns the name of an object's role, as the AppDef has it."""
    found = annotations_of(resource).get(ANNOTATION_ROLE_NAME)
    return str(found or labels_of(resource).get(LABEL_ROLE_NAME) or "")


def words_of(condition: Mapping[str, Any]) -> str:
    """Returns why a condition is as it is, on one line."""
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    if reason == "PodFailurePolicy":
        # which rule of ours it was says nothing
        reason, message = "", str(message).partition(" matching FailJob")[0]
    return " ".join(": ".join(str(part) for part in (reason, message) if part).split())


def suspended_words(resource: Mapping[str, Any]) -> str:
    """Returns why an object that is suspended is so."""
    queue = labels_of(resource).get(LABEL_QUEUE)
    return f"waits in the queue {queue} of Kueue" if queue else "suspended"
