"""Read Jobs, JobSets and Volcano Jobs into :class:`AppView`, which is the same for all APIs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchx_sched_k8s.cluster.containers import min_replicas_of
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_CANCELLED,
    ANNOTATION_ENDED,
    ANNOTATION_METADATA,
    LABEL_APP_NAME,
    LABEL_ROLE_INDEX,
    annotations_of,
    labels_of,
)
from torchx_sched_k8s.status.job_states import (
    VOLCANO_JOB_STATES,
    condition_reason,
    role_name_of,
    suspension_reason,
    true_conditions,
)
from torchx_sched_k8s.status.times import end_of, job_start, phase_times
from torchx_sched_k8s.submission import unfinished_message
from torchx_sched_k8s.supervisor import Supervision
from torchx_specs.model.status import AppState, is_terminal

#: Action of a JobSet's failure policy: a restart that does not count towards ``maxRestarts``.
_UNLIMITED_RESTARTS = "RestartJobSetAndIgnoreMaxRestarts"


@dataclass
class RoleView:
    """One role of an app.

    Attributes:
        index: Index of the role in its app.
        name: Name of the role, as in the AppDef.
        replicas: Number of replicas.
        template: Pod template of the role; the first one if the role has several.
        state: State of the role; None if the API reports only the state of the app.
        owner: Name of the object that creates the role's pods.
        min_replicas: The role's ``min_replicas``; None if the role has none.
        retries: The role's ``max_retries``, as far as the objects contain it.
        succeeded: Indices of replicas that have succeeded, even if their pods were deleted.
        failed: Indices of replicas that have failed for good.
        wants_pods: Whether the role's pods should exist by now.
        ended_for: Why the supervisor ended the role although the role had not failed; empty if the
            supervisor did not end it.
        owner_uid: Unique id of the object ``owner``; empty if unknown.
        started: When the role's Job started, as text in the form of the API; empty if unknown.
        failures: How many failed pods the role's Job has counted; evicted pods are not counted.
    """

    index: int
    name: str
    replicas: int
    template: Mapping[str, Any]
    state: AppState | None = None
    owner: str = ""
    min_replicas: int | None = None
    retries: int = 0
    succeeded: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    wants_pods: bool = False
    ended_for: str = ""
    owner_uid: str = ""
    started: str = ""
    failures: int = 0


@dataclass
class AppView:
    """One app, as described by its objects other than pods.

    Attributes:
        api: ``batch``, ``jobset``, ``volcano`` or ``mcad``.
        app_id: Name of the app in the cluster.
        name: Name of the app, as in the AppDef.
        state: State of the app; the states of its pods may refine it.
        message: Why the app is in this state; empty if there is nothing to show.
        roles: The roles, in the order of the AppDef.
        objects: The app's Jobs, or its JobSet, Volcano Job or AppWrapper, as the API returns them.
        restarts: How many times the whole app was restarted.
        metadata: Metadata of the AppDef.
        supervision: The app's Jobs and their supervisor; None if the app has no supervisor.
        unfinished: Status message of an unfinished submission; empty if the submission is finished.
        runs_again: Whether the whole app may be restarted, so that replicas that have succeeded run
            again.
        started: When the app started, according to its objects; None if unknown.
        ended: When the app ended, according to its objects; None if unknown.
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
    supervision: Supervision | None = None
    unfinished: str = ""
    runs_again: bool = False
    started: datetime | None = None
    ended: datetime | None = None


def state_of(role: RoleView, view: AppView) -> AppState:
    """Return the state of a role, or the app's state if the API reports no states of roles."""
    return role.state if role.state is not None else view.state


def batch_view(
    app_id: str,
    jobs: Sequence[Mapping[str, Any]],
    missing_jobs: Sequence[Mapping[str, Any]] = (),
) -> AppView:
    """Return the data of an app that consists of plain Jobs.

    Args:
        app_id: Name of the app in the cluster.
        jobs: The app's Jobs, including the supervisor's Job.
        missing_jobs: Manifests of Jobs that do not exist because the app is being restarted.
    """
    supervision = Supervision(jobs, missing_jobs)
    several = len(supervision.role_jobs) > 1
    states, roles, messages = [], [], []
    for i, job in enumerate(supervision.role_jobs):
        state, message = supervision.state_of(job)
        spec, status = job["spec"], job.get("status") or {}
        states.append(state)
        if message:
            messages.append((state, f"{role_name_of(job)}: {message}" if several else message))
        retries = supervision.max_restarts(job)
        replaced = supervision.is_replaced(job)
        roles.append(
            RoleView(
                int(labels_of(job).get(LABEL_ROLE_INDEX) or i),
                role_name_of(job),
                int(spec.get("completions") or 1),
                spec["template"],
                state,
                str(job["metadata"]["name"]),
                min_replicas_of(spec["template"]),
                int(retries or spec.get("backoffLimitPerIndex") or spec.get("backoffLimit") or 0),
                frozenset() if replaced else frozenset(indices(status.get("completedIndexes"))),
                frozenset() if replaced else frozenset(indices(status.get("failedIndexes"))),
                wants_pods=not (is_terminal(state) or spec.get("suspend") or replaced),
                ended_for=annotations_of(job).get(ANNOTATION_ENDED, ""),
                owner_uid=str(job["metadata"].get("uid") or ""),
                started=str(status.get("startTime") or ""),
                failures=int(status.get("failed") or 0),
            )
        )
    state = combined([*states, *[supervision.missing_state] * supervision.missing])
    message = next((text for of, text in messages if of == state), "")
    if supervision.ended and state != AppState.SUCCEEDED:
        state, message = supervision.ended
    elif state == AppState.FAILED and not all(map(is_terminal, states)):
        active = supervision.is_active
        message += "; other roles still run, "
        message += "the supervisor ends them" if active else "delete the app to end them"
    view = app_view("batch", app_id, state, message, roles, supervision.objects)
    view.restarts = supervision.restarts
    view.supervision = supervision if supervision.supervisor is not None else None
    view.unfinished = unfinished_message(jobs)
    view.runs_again = supervision.may_restart and not is_terminal(state)
    view.started, view.ended = job_start(supervision.role_jobs), end_of(supervision.role_jobs)
    return view


def jobset_view(app_id: str, jobset: Mapping[str, Any]) -> AppView:
    """Return the data of an app that is a JobSet.

    Args:
        app_id: Name of the app in the cluster.
        jobset: The JobSet.
    """
    spec, status = jobset.get("spec") or {}, jobset.get("status") or {}
    true = true_conditions(jobset)
    counts = status.get("replicatedJobsStatus") or ()
    message = ""
    if "Completed" in true or status.get("terminalState") == "Completed":
        state = AppState.SUCCEEDED
    elif ANNOTATION_CANCELLED in annotations_of(jobset):
        state = AppState.CANCELLED
        message = f"cancelled {annotations_of(jobset)[ANNOTATION_CANCELLED]}"
    elif "Failed" in true or status.get("terminalState") == "Failed":
        state, message = AppState.FAILED, condition_reason(true.get("Failed") or {})
    elif spec.get("suspend"):
        state, message = AppState.PENDING, suspension_reason(jobset)
    elif any(one.get("ready") for one in counts):
        state = AppState.RUNNING
    else:
        state = AppState.PENDING if counts else AppState.SUBMITTED
    policy = spec.get("failurePolicy") or {}
    roles = []
    for i, one in enumerate(spec.get("replicatedJobs") or ()):
        job = one["template"]
        inner = job["spec"]
        roles.append(
            RoleView(
                i,
                role_name_of(job) or str(one["name"]),
                int(inner.get("completions") or 1),
                inner["template"],
                owner=f"{app_id}-{one['name']}-0",
                min_replicas=min_replicas_of(inner["template"]),
                retries=int(inner.get("backoffLimitPerIndex") or policy.get("maxRestarts") or 0),
                wants_pods=not is_terminal(state) and not spec.get("suspend"),
            )
        )
    view = app_view("jobset", app_id, state, message, roles, [jobset])
    view.restarts = int(status.get("restarts") or 0)
    view.runs_again = not is_terminal(state) and _jobset_restarts(policy, status)
    view.ended = end_of([jobset])
    return view


def _jobset_restarts(policy: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether the failure policy of a JobSet may restart the JobSet once more."""
    if any(r.get("action") == _UNLIMITED_RESTARTS for r in policy.get("rules") or ()):
        return True
    counted = status.get("restartsCountTowardsMax", status.get("restarts"))
    return int(counted or 0) < int(policy.get("maxRestarts") or 0)


def volcano_view(app_id: str, job: Mapping[str, Any]) -> AppView:
    """Return the data of an app that is a Volcano Job.

    Args:
        app_id: Name of the app in the cluster.
        job: The Volcano Job.
    """
    spec, status = job.get("spec") or {}, job.get("status") or {}
    condition = status.get("state") or {}
    phase = str(condition.get("phase") or "")
    state = VOLCANO_JOB_STATES.get(phase, AppState.UNKNOWN) if phase else AppState.PENDING
    if ANNOTATION_CANCELLED in annotations_of(job) and state != AppState.SUCCEEDED:
        state = AppState.CANCELLED
    message = ""
    if state not in (AppState.SUCCEEDED, AppState.RUNNING):
        message = condition_reason(condition)
    roles: dict[int, RoleView] = {}
    tasks = spec.get("tasks") or ()
    for task in tasks:
        template = task["template"]
        name = role_name_of(template) or str(task["name"]).rpartition("-")[0] or str(task["name"])
        index = int(labels_of(template).get(LABEL_ROLE_INDEX) or 0)
        role = roles.setdefault(index, RoleView(index, name, 0, template, owner=app_id))
        role.min_replicas = min_replicas_of(template)
        role.replicas += int(task.get("replicas") or 1)
        role.retries = int(task.get("maxRetry") or 0)
        role.wants_pods = not is_terminal(state)
    ordered = [roles[index] for index in sorted(roles)]
    view = app_view("volcano", app_id, state, message, ordered, [job])
    # the failure after which Volcano gives up is also counted in `retryCount`
    most = int(spec.get("maxRetry") or 3) - 1
    view.restarts = min(int(status.get("retryCount") or 0), most)
    view.runs_again = not is_terminal(state) and any(map(_restarts_job, [spec, *tasks]))
    ends = [name for name, reached in VOLCANO_JOB_STATES.items() if is_terminal(reached)]
    view.started, view.ended = phase_times(job, ["Running"], ends)
    return view


def _restarts_job(part: Mapping[str, Any]) -> bool:
    """Return whether the policies of a Volcano Job or task may restart the whole Job."""
    return any(one.get("action") == "RestartJob" for one in part.get("policies") or ())


def is_ours(volcano_job: Mapping[str, Any]) -> bool:
    """Return whether TorchX made a Volcano Job; older releases labelled only the Job's pods."""
    tasks = (volcano_job.get("spec") or {}).get("tasks") or [{}]
    labelled = [labels_of(volcano_job), labels_of(tasks[0].get("template") or {})]
    return any(LABEL_APP_NAME in labels for labels in labelled)


def combined(states: Iterable[AppState]) -> AppState:
    """Return the state of an app from its roles' states.

    If a role was cancelled or has failed, the app has the same state. Otherwise the app is RUNNING
    if a role is, SUCCEEDED if all roles are, and in the earliest state of the other roles if not.
    """
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
    """Yield the indices in a text such as the field ``completedIndexes`` of a Job.

    >>> list(indices("1,3-5"))
    [1, 3, 4, 5]
    """
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            yield from range(int(first), int(last if last.isdigit() else first) + 1)


def app_view(
    api: str,
    app_id: str,
    state: AppState,
    message: str,
    roles: list[RoleView],
    objects: Sequence[Mapping[str, Any]],
) -> AppView:
    """Return the data of an app; its name and metadata are read from the first of ``objects``.

    Args:
        api: The API of the objects: ``batch``, ``jobset``, ``volcano`` or ``mcad``.
        app_id: Name of the app in the cluster.
        state: State of the app.
        message: Why the app is in this state; empty if there is nothing to show.
        roles: The roles, in the order of the AppDef.
        objects: The app's Jobs, or its JobSet, Volcano Job or AppWrapper.
    """
    first = objects[0] if objects else {}
    name = annotations_of(first).get(ANNOTATION_APP_NAME) or labels_of(first).get(LABEL_APP_NAME)
    metadata: dict[str, str] = {}
    try:
        annotation = json.loads(annotations_of(first).get(ANNOTATION_METADATA) or "{}")
        metadata = {str(key): str(value) for key, value in annotation.items()}
    except (ValueError, AttributeError):
        pass  # another program changed the annotation; show no metadata
    return AppView(api, app_id, name or "", state, message, roles, list(objects), 0, metadata)
