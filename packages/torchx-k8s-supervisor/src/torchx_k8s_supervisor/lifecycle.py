"""Functions for a supervisor's objects when the app is submitted, cancelled or deleted."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_k8s_supervisor.annotations import ANNOTATION_ROLES
from torchx_sched_k8s.backends.supervision import find_owner, is_supervisor
from torchx_sched_k8s.cluster.labels import annotations_of, selector
from torchx_sched_k8s.cluster.paths import BATCH, CORE, RBAC, object_path
from torchx_sched_k8s.status.job_states import true_conditions

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: How long :func:`stop` waits for the supervisor's pod to end, in seconds.
_STOP_SECONDS = 15.0
_STOP_PAUSE = 0.3
_ACCOUNT_KINDS = frozenset({"ServiceAccount", "Role", "RoleBinding"})


def rights_hint(resource: Mapping[str, Any]) -> str:
    """Return a remedy for a user who may not create an object; empty if there is none."""
    if resource.get("kind") not in _ACCOUNT_KINDS:
        return ""
    return (
        "or name an existing account with the rights to get, create, patch and delete jobs and to"
        " get configmaps (with requeue, also to list, watch and patch pods): -cfg"
        " restarts_service_account=NAME"
    )


def unsupervised(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return an app's objects without the supervisor's objects.

    Return None if the app has no supervisor, or if its supervisor is also needed for restarts.

    Args:
        objects: The objects of the app.
    """
    owner = find_owner(objects)
    if owner is None or ANNOTATION_ROLES in annotations_of(owner):
        return None
    kept = [copy.deepcopy(one) for one in objects if not is_supervisor(one)]
    for one in kept:
        if one.get("kind") == "Job" and "ttlSecondsAfterFinished" in owner["spec"]:
            one["spec"]["ttlSecondsAfterFinished"] = owner["spec"]["ttlSecondsAfterFinished"]
    return kept


def stop(
    cluster: Cluster, namespace: str, app_id: str, changes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """End the supervisor's Job and wait at most 15 seconds for its pod to end.

    A running supervisor could create Jobs while the app is being cancelled. The supervisor's Job is
    suspended. If it has a time to live, it gets a deadline instead: the cluster deletes only
    finished Jobs, and a suspended Job is not finished. The roles' Jobs need no deadline, because
    the cluster deletes them with the supervisor's Job, which owns them.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        app_id: Name of the app in the cluster.
        changes: Other changes to merge into the supervisor's Job in the same request.

    Returns:
        The roles' Jobs that exist after the wait and are not being deleted.
    """
    action = f"cancel {app_id}"
    path = object_path(BATCH, namespace, "jobs", app_id)
    job = cluster.get_or_none(path, action) or {}
    expires = "ttlSecondsAfterFinished" in (job.get("spec") or {})
    ending: dict[str, Any] = {"activeDeadlineSeconds": 1} if expires else {"suspend": True}
    cluster.patch(path, {**changes, "spec": ending}, action)
    query = {"labelSelector": selector(instance=app_id)}
    deadline = time.monotonic() + _STOP_SECONDS
    while True:
        path = object_path(BATCH, namespace, "jobs")
        jobs = cluster.get(path, action, query).get("items") or []
        stopped = all(_is_stopped(job) for job in jobs if is_supervisor(job))
        if stopped or time.monotonic() > deadline:
            return [
                job
                for job in jobs
                if not is_supervisor(job) and "deletionTimestamp" not in job["metadata"]
            ]
        time.sleep(_STOP_PAUSE)


def _is_stopped(job: Mapping[str, Any]) -> bool:
    if not true_conditions(job).keys() & {"Suspended", "Complete", "Failed"}:
        return False
    status = job.get("status") or {}
    return not status.get("active") and not status.get("terminating")


def dependents(supervisor: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the API path, the plural and the name of each object that only the supervisor uses.

    The cluster deletes these objects together with the supervisor's Job, which owns them. Objects
    that a user created with kubectl from a dry run have no owner and must be deleted by name.

    Args:
        supervisor: The supervisor's Job.
    """
    name = str(supervisor["metadata"]["name"])
    # only a supervisor that restarts the app has a config map
    restarts = ANNOTATION_ROLES in annotations_of(supervisor)
    kinds = [(CORE, "configmaps")] if restarts else []
    pod = supervisor["spec"]["template"]["spec"]
    if pod.get("serviceAccountName") == name:
        kinds += [(RBAC, "rolebindings"), (RBAC, "roles"), (CORE, "serviceaccounts")]
    return [(api, plural, name) for api, plural in kinds]
