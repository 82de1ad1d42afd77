"""Read states, the reasons for them, and times from Jobs and similar objects.

The APIs report different times. Plain Jobs have a start and a completion time, Volcano Jobs and
AppWrappers only the times of their phases, and JobSets only the time of their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from torchx_kit.times import datetime_of
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


_ENDS = ("Complete", "Completed", "Failed")


def time_stamp() -> str:
    """Return the present time in the form of the API: UTC, in whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def creation(objects: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the first of an app's objects was created, or None if unknown."""
    return earliest((one.get("metadata") or {}).get("creationTimestamp") for one in objects)


def job_start(jobs: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the Job controller started the first of an app's Jobs, or None if unknown."""
    return earliest((job.get("status") or {}).get("startTime") for job in jobs)


def end_of(objects: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return when the last of an app's Jobs or JobSets ended; None if unknown.

    A Job or JobSet ends when it completes, fails or is cancelled.
    """
    times: list[object] = []
    for one in objects:
        times.append((one.get("status") or {}).get("completionTime"))
        true = true_conditions(one)
        times += [true[name].get("lastTransitionTime") for name in _ENDS if name in true]
        times.append(annotations_of(one).get(ANNOTATION_CANCELLED))
    return latest(times)


def phase_times(
    resource: Mapping[str, Any], running: Iterable[str], ended: Iterable[str]
) -> tuple[datetime | None, datetime | None]:
    """Return when a Volcano Job or an AppWrapper last started, and when it ended.

    A time that is unknown is None.

    Args:
        resource: The object. Its conditions contain the time at which it reached each phase.
        running: The phases in which pods run.
        ended: The phases of an ended app.
    """
    times: dict[str, list[object]] = {}
    for condition in (resource.get("status") or {}).get("conditions") or ():
        phase = str(condition.get("type") or condition.get("status") or "")
        when = condition.get("lastTransitionTime") or condition.get("lastTransitionMicroTime")
        times.setdefault(phase, []).append(when)
    started = latest(when for phase in running for when in times.get(phase, ()))
    ends = [when for phase in ended for when in times.get(phase, ())]
    return started, latest([*ends, annotations_of(resource).get(ANNOTATION_CANCELLED)])


def earliest(stamps: Iterable[object]) -> datetime | None:
    """Return the earliest of the times in the form of the API, or None if there is none."""
    return min((t for t in map(datetime_of, stamps) if t is not None), default=None)


def latest(stamps: Iterable[object]) -> datetime | None:
    """Return the latest of the times in the form of the API, or None if there is none."""
    return max((t for t in map(datetime_of, stamps) if t is not None), default=None)
