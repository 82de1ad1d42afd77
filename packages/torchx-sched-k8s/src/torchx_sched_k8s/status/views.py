"""The data of an app that its objects contain, in the same form for all APIs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_METADATA,
    LABEL_APP_NAME,
    annotations_of,
    labels_of,
    min_replicas_of,
)
from torchx_sched_k8s.status.job_states import failure_limit
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_sched_k8s.backends.backend import Backend
    from torchx_sched_k8s.backends.supervision import Supervision


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
    min_replicas: int | None = None
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
    template = spec["template"]
    limit, is_per_replica = failure_limit(spec)
    return RoleView(
        index,
        name,
        int(spec.get("completions") or 1),
        template,
        owner=owner,
        min_replicas=min_replicas_of(template),
        limit=limit,
        limit_is_per_replica=is_per_replica,
        **fields,
    )


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
    metadata: dict[str, str] = {}
    try:
        annotation = json.loads(annotations_of(first).get(ANNOTATION_METADATA) or "{}")
        metadata = {str(key): str(value) for key, value in annotation.items()}
    except (ValueError, AttributeError):
        pass  # another program changed the annotation; show no metadata
    return AppView(backend, app_id, name or "", objects=list(objects), metadata=metadata, **fields)
