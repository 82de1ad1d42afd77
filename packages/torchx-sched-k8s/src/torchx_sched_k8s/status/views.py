"""The data of an app that its objects contain, in the same form for all APIs.

The APIs report different times. Plain Jobs have a start and a completion time, Volcano Jobs and
AppWrappers only the times of their phases, and JobSets only the time of their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from torchx_kit.times import datetime_of
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_CANCELLED,
    ANNOTATION_ENDED,
    ANNOTATION_METADATA,
    ANNOTATION_ROLE_NAME,
    LABEL_APP_NAME,
    LABEL_QUEUE,
    LABEL_ROLE_NAME,
    annotations_of,
    json_annotation,
    labels_of,
)
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_sched_k8s.backends.backend import Backend
    from torchx_sched_k8s.backends.supervision import Supervision

_ENDS = ("Complete", "Completed", "Failed")


@dataclass
class RoleView:
    """One role of an app.

    Attributes:
        index: Index of the role in its app.
        name: Name of the role, as in the AppDef.
        replicas: Number of replicas.
        template: Pod template of the role; the first one if the role has several.
        state: State of the role, or that of the app if the API reports no states of roles.
        owner: Name of the object that creates the role's pods.
        retries: The role's ``max_retries``, as far as the objects contain it.
        succeeded: Indices of replicas that have succeeded, even if their pods were deleted.
        failed: Indices of replicas that have failed for good.
        wants_pods: Whether the role's pods should exist by now.
        ended_for: Why the supervisor ended the role although the role had not failed; empty if the
            supervisor did not end it.
        owner_uid: Unique id of the object ``owner``; empty if unknown.
        started: When the role's Job started, as text in the form of the API; empty if unknown.
        failures: How many failed pods the role's Job has counted; evicted pods are not counted.
        limit: How many pods may fail until the role, or with ``limit_is_per_replica`` the replica,
            has failed for good; None if only the role's object shows this.
        limit_is_per_replica: Whether each replica has a limit of its own.
    """

    index: int
    name: str
    replicas: int
    template: Mapping[str, Any]
    state: AppState = AppState.UNKNOWN
    owner: str = ""
    retries: int = 0
    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    wants_pods: bool = False
    ended_for: str = ""
    owner_uid: str = ""
    started: str = ""
    failures: int = 0
    limit: int | None = None
    limit_is_per_replica: bool = False


@dataclass
class AppView:
    """One app, as described by its objects other than pods.

    Attributes:
        backend: The API of the objects.
        app_id: Name of the app in the cluster.
        name: Name of the app, as in the AppDef.
        state: State of the app; the states of its pods may refine it.
        message: Why the app is in this state; empty if there is nothing to show.
        roles: The roles, in the order of the AppDef.
        objects: The app's Jobs, or its JobSet, Volcano Job or AppWrapper, as the API returns them.
        restarts: How many times the whole app was restarted.
        metadata: Metadata of the AppDef.
        supervision: The app's Jobs and their supervisor; None if the app has no plain Jobs.
        unfinished: Status message of an unfinished submission; empty if the submission is finished.
        runs_again: Whether the whole app may be restarted, so that replicas that have succeeded run
            again.
        started: When the app started, according to its objects; None if unknown.
        ended: When the app ended, according to its objects; None if unknown.
    """

    backend: Backend
    app_id: str
    name: str
    state: AppState
    message: str = ""
    roles: list[RoleView] = field(default_factory=list)
    objects: list[Mapping[str, Any]] = field(default_factory=list)
    restarts: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    supervision: Supervision | None = None
    unfinished: str = ""
    runs_again: bool = False
    started: datetime | None = None
    ended: datetime | None = None


def role_of_job(
    index: int, name: str, spec: Mapping[str, Any], owner: str, **fields: Any
) -> RoleView:
    """Return a role whose replicas are the indexes of a Job.

    Args:
        index: Index of the role in its app.
        name: Name of the role, as in the AppDef.
        spec: Spec of the Job.
        owner: Name of the Job.
        **fields: The fields of the :class:`RoleView` that the spec does not contain.
    """
    limit, is_per_replica = failure_limit(spec)
    return RoleView(
        index,
        name,
        int(spec.get("completions") or 1),
        spec["template"],
        owner=owner,
        limit=limit,
        limit_is_per_replica=is_per_replica,
        **fields,
    )


def combined(states: Iterable[AppState]) -> AppState:
    """Return the state of an app from its roles' states.

    If a role was cancelled or has failed, the app has the same state. Otherwise the app is RUNNING
    if a role is, SUCCEEDED if all roles are, and in the earliest state of the other roles if not.
    """
    found = set(states)
    for state in (AppState.CANCELLED, AppState.FAILED, AppState.RUNNING):
        if state in found:
            return state
    return min(found - {AppState.SUCCEEDED}, default=AppState.SUCCEEDED)


def app_view(
    backend: Backend, app_id: str, objects: Sequence[Mapping[str, Any]], **fields: Any
) -> AppView:
    """Return the data of an app; its name and metadata are read from the first of ``objects``.

    Args:
        backend: The API of the objects.
        app_id: Name of the app in the cluster.
        objects: The app's Jobs, or its JobSet, Volcano Job or AppWrapper.
        **fields: The other fields of the :class:`AppView`.
    """
    first = objects[0] if objects else {}
    name = annotations_of(first).get(ANNOTATION_APP_NAME) or labels_of(first).get(LABEL_APP_NAME)
    found = json_annotation(first, ANNOTATION_METADATA)
    texts = found if isinstance(found, dict) else {}
    metadata = {str(key): str(value) for key, value in texts.items()}
    return AppView(backend, app_id, name or "", objects=list(objects), metadata=metadata, **fields)


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
