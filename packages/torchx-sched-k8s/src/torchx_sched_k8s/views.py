"""What a cluster says of an app's own objects (Jobs, JobSet ...), the same for every API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx_sched_k8s.compat import JOB_STATE
from torchx_sched_k8s.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_CANCELLED,
    ANNOTATION_METADATA,
    ANNOTATION_ROLE_NAME,
    LABEL_APP_NAME,
    LABEL_QUEUE,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
    annotations_of,
    labels_of,
)
from torchx_specs.status import AppState, is_terminal


@dataclass
class RoleView:
    """One role.

    Args:
        index: of the role in its app
        name: as the AppDef has it
        replicas: how many
        template: of its pods, or one of them
        state: of the role by itself, None if only the app has one
        owner: name of the object that makes its pods
        least: how many replicas will do, None for all
        retries: how often it starts again
        succeeded: indices of replicas that are done although their pods may be gone
        failed: indices of replicas that have failed for good
        wants_pods: pods should be there by now
    """

    index: int
    name: str
    replicas: int
    template: Mapping[str, Any]
    state: AppState | None = None
    owner: str = ""
    least: int | None = None
    retries: int = 0
    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    wants_pods: bool = False


@dataclass
class AppView:
    """One app.

    Args:
        api: ``batch``, ``jobset``, ``volcano`` or ``mcad``
        app_id: its name in the cluster
        name: as the AppDef has it
        state: as far as its own objects tell
        message: why, empty if there is nothing to say
        roles: in their order
        objects: those it was read from
        restarts: of the whole app
        metadata: of the AppDef
    """

    api: str
    app_id: str
    name: str
    state: AppState
    message: str = ""
    roles: list[RoleView] = field(default_factory=list)
    objects: list[Mapping[str, Any]] = field(default_factory=list)
    restarts: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


def batch_view(app_id: str, jobs: Sequence[Mapping[str, Any]]) -> AppView:
    """Reads the Jobs of an app."""
    jobs = sorted(jobs, key=lambda job: int(labels_of(job).get(LABEL_ROLE_INDEX) or 0))
    states, roles, messages = [], [], []
    for i, job in enumerate(jobs):
        state, message = job_state(job)
        spec, status = job["spec"], job.get("status") or {}
        states.append(state)
        if message:
            messages.append((state, message if len(jobs) < 2 else f"{_role_name(job)}: {message}"))
        completions = int(spec.get("completions") or 1)
        success = (spec.get("successPolicy") or {}).get("rules") or [{}]
        roles.append(
            RoleView(
                int(labels_of(job).get(LABEL_ROLE_INDEX) or i),
                _role_name(job),
                completions,
                spec["template"],
                state,
                str(job["metadata"]["name"]),
                success[0].get("succeededCount"),
                int(spec.get("backoffLimitPerIndex") or spec.get("backoffLimit") or 0),
                frozenset(indices(status.get("completedIndexes"))),
                frozenset(indices(status.get("failedIndexes"))),
                wants_pods=not is_terminal(state) and not spec.get("suspend"),
            )
        )
    state = combined(states)
    message = next((text for of, text in messages if of == state), "")
    if state == AppState.FAILED and not all(map(is_terminal, states)):
        message += "; other roles still run, delete the app to end them"
    return _view("batch", app_id, state, message, roles, jobs)


def job_state(job: Mapping[str, Any]) -> tuple[AppState, str]:
    """Returns the state of a Job, and why."""
    status, spec = job.get("status") or {}, job.get("spec") or {}
    true = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    if "Complete" in true:
        return AppState.SUCCEEDED, ""
    if ANNOTATION_CANCELLED in annotations_of(job):
        return AppState.CANCELLED, f"cancelled {annotations_of(job)[ANNOTATION_CANCELLED]}"
    if "Failed" in true:
        return AppState.FAILED, _words(true["Failed"])
    if spec.get("suspend"):
        return AppState.PENDING, _suspended(job)
    if status.get("ready") or {"FailureTarget", "SuccessCriteriaMet"} & true.keys():
        return AppState.RUNNING, ""
    if status.get("active"):
        return AppState.PENDING, ""
    return (AppState.RUNNING if status.get("succeeded") else AppState.SUBMITTED), ""


def jobset_view(app_id: str, jobset: Mapping[str, Any]) -> AppView:
    """Reads a JobSet."""
    spec, status = jobset.get("spec") or {}, jobset.get("status") or {}
    true = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    counts = status.get("replicatedJobsStatus") or ()
    message = ""
    if "Completed" in true or status.get("terminalState") == "Completed":
        state = AppState.SUCCEEDED
    elif ANNOTATION_CANCELLED in annotations_of(jobset):
        state = AppState.CANCELLED
        message = f"cancelled {annotations_of(jobset)[ANNOTATION_CANCELLED]}"
    elif "Failed" in true or status.get("terminalState") == "Failed":
        state, message = AppState.FAILED, _words(true.get("Failed") or {})
    elif spec.get("suspend"):
        state, message = AppState.PENDING, _suspended(jobset)
    elif any(one.get("ready") for one in counts):
        state = AppState.RUNNING
    else:
        state = AppState.PENDING if counts else AppState.SUBMITTED
    policy = spec.get("failurePolicy") or {}
    roles = []
    for i, one in enumerate(spec.get("replicatedJobs") or ()):
        job = one["template"]
        inner = job["spec"]
        success = (inner.get("successPolicy") or {}).get("rules") or [{}]
        roles.append(
            RoleView(
                i,
                _role_name(job) or str(one["name"]),
                int(inner.get("completions") or 1),
                inner["template"],
                owner=f"{app_id}-{one['name']}-0",
                least=success[0].get("succeededCount"),
                retries=int(inner.get("backoffLimitPerIndex") or policy.get("maxRestarts") or 0),
                wants_pods=not is_terminal(state) and not spec.get("suspend"),
            )
        )
    view = _view("jobset", app_id, state, message, roles, [jobset])
    view.restarts = int(status.get("restarts") or 0)
    return view


def volcano_view(app_id: str, job: Mapping[str, Any]) -> AppView:
    """Reads a Volcano Job."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    told = status.get("state") or {}
    phase = str(told.get("phase") or "")
    state = JOB_STATE.get(phase, AppState.UNKNOWN) if phase else AppState.PENDING
    if ANNOTATION_CANCELLED in annotations_of(job) and state != AppState.SUCCEEDED:
        state = AppState.CANCELLED
    message = ""
    if state not in (AppState.SUCCEEDED, AppState.RUNNING):
        message = _words(told)
    roles: dict[int, RoleView] = {}
    for task in spec.get("tasks") or ():
        template = task["template"]
        name = _role_name(template) or str(task["name"]).rpartition("-")[0] or str(task["name"])
        index = int(labels_of(template).get(LABEL_ROLE_INDEX) or 0)
        role = roles.setdefault(index, RoleView(index, name, 0, template, owner=app_id))
        role.replicas += int(task.get("replicas") or 1)
        role.retries = int(task.get("maxRetry") or 0)
        role.wants_pods = not is_terminal(state)
    ordered = [roles[index] for index in sorted(roles)]
    view = _view("volcano", app_id, state, message, ordered, [job])
    view.restarts = int(status.get("retryCount") or 0)
    return view


def is_ours(volcano_job: Mapping[str, Any]) -> bool:
    """Returns True for a Volcano Job that TorchX made; older ones say so in their pods only."""
    tasks = (volcano_job.get("spec") or {}).get("tasks") or [{}]
    held = [labels_of(volcano_job), labels_of(tasks[0].get("template") or {})]
    return any(LABEL_APP_NAME in labels for labels in held)


def combined(states: Iterable[AppState]) -> AppState:
    """Returns the state of an app from those of its roles: one that failed fails the app."""
    states = list(states)
    for state in (AppState.CANCELLED, AppState.FAILED):
        if state in states:
            return state
    if all(state == AppState.SUCCEEDED for state in states):
        return AppState.SUCCEEDED
    if AppState.RUNNING in states:
        return AppState.RUNNING
    return min(state for state in states if state != AppState.SUCCEEDED)


def indices(text: Any) -> Iterable[int]:
    """Yields the numbers of a text as Jobs have it.

    >>> list(indices("1,3-5"))
    [1, 3, 4, 5]
    """
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            yield from range(int(first), int(last if last.isdigit() else first) + 1)


def _view(
    api: str,
    app_id: str,
    state: AppState,
    message: str,
    roles: list[RoleView],
    objects: Sequence[Mapping[str, Any]],
) -> AppView:
    first = objects[0] if objects else {}
    name = annotations_of(first).get(ANNOTATION_APP_NAME) or labels_of(first).get(LABEL_APP_NAME)
    metadata: dict[str, str] = {}
    try:
        told = json.loads(annotations_of(first).get(ANNOTATION_METADATA) or "{}")
        metadata = {str(key): str(value) for key, value in told.items()}
    except (ValueError, AttributeError):
        pass  # somebody has changed it
    return AppView(api, app_id, name or "", state, message, roles, list(objects), 0, metadata)


def _role_name(resource: Mapping[str, Any]) -> str:
    found = annotations_of(resource).get(ANNOTATION_ROLE_NAME)
    return str(found or labels_of(resource).get(LABEL_ROLE_NAME) or "")


def _words(condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    return " ".join(": ".join(str(part) for part in (reason, message) if part).split())


def _suspended(resource: Mapping[str, Any]) -> str:
    queue = labels_of(resource).get(LABEL_QUEUE)
    return f"waits in the queue {queue} of Kueue" if queue else "suspended"
