"""Cancel and delete apps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s import supervisor
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    LABEL_QUEUE,
    LABEL_WORKLOAD_OWNER,
    labels_of,
)
from torchx_sched_k8s.cluster.paths import (
    BATCH,
    CORE,
    JOBSET,
    KUEUE,
    MCAD,
    VOLCANO,
    object_path,
)
from torchx_sched_k8s.expiry import expire, expiry_name
from torchx_sched_k8s.status.job_states import job_state
from torchx_sched_k8s.status.times import time_stamp
from torchx_sched_k8s.status.views import AppView
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def cancel(cluster: Cluster, namespace: str, view: AppView | None) -> None:
    """End an app's unfinished Jobs, and keep their objects, annotated as cancelled.

    Do nothing if the app has ended, or is missing.

    The cluster deletes the pods of these Jobs, and with the pods their logs. A supervisor is
    stopped first, because it could create Jobs in the meantime.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app.
    """
    if view is None or view.state == AppState.SUCCEEDED:
        return
    if is_terminal(view.state) and not _has_unfinished_jobs(view):
        return
    when = time_stamp()
    changes = {"metadata": {"annotations": {ANNOTATION_CANCELLED: when}}}
    objects: Sequence[Mapping[str, Any]] = view.objects
    if view.supervision is not None:
        objects = objects[1:]
        if not view.supervision.is_decided:
            objects = supervisor.stop(cluster, namespace, view.app_id, changes)
    for resource in objects:
        name = str(resource["metadata"]["name"])
        action = f"cancel {name}"
        if view.api == "volcano":
            path = object_path(VOLCANO, namespace, "jobs", name)
            cluster.patch(path, changes, action)
            # Volcano deletes only finished Jobs after their time to live. A terminated Job is
            # finished; an aborted Job is not, because it can be resumed (`isJobFinished` in
            # pkg/controllers/garbagecollector/garbagecollector.go).
            expires = resource["spec"].get("ttlSecondsAfterFinished") is not None
            phase = {"phase": "Terminated" if expires else "Aborted", "lastTransitionTime": when}
            state = {"status": {"state": phase}}
            cluster.patch(object_path(VOLCANO, namespace, "jobs", name, "status"), state, action)
            continue
        if view.api == "batch" and is_terminal(job_state(resource)[0]):
            continue
        api, plural = (BATCH, "jobs") if view.api == "batch" else (JOBSET, "jobsets")
        path = object_path(api, namespace, plural, name)
        if LABEL_QUEUE in labels_of(resource):
            # Kueue would resume a suspended Job, unless the Job's Workload is inactive
            cluster.patch(path, changes, action)
            if _deactivate(cluster, namespace, resource, action):
                expire(cluster, namespace, path, resource)
                continue
        ending: dict[str, Any] = {"suspend": True}
        if view.api == "jobset" or resource["spec"].get("suspend"):
            cluster.patch(path, {**changes, "spec": ending}, action)
            expire(cluster, namespace, path, resource)
            continue
        if "ttlSecondsAfterFinished" in resource["spec"]:
            # The cluster deletes only finished Jobs, and a suspended Job is not finished. A
            # deadline of one second fails the Job ("Job termination and cleanup" in
            # https://kubernetes.io/docs/concepts/workloads/controllers/job/).
            ending = {"activeDeadlineSeconds": 1}
        cluster.patch(path, {**changes, "spec": ending}, action)


def _has_unfinished_jobs(view: AppView) -> bool:
    """Return whether an ended app has plain Jobs, apart from the supervisor, that run or wait.

    Such Jobs exist if a cancel was interrupted, or for a short time after another role has failed.
    With another ``job_api`` the result is False.
    """
    if view.api != "batch":
        return False
    return any(
        not is_terminal(job_state(job)[0])
        for job in view.objects
        if view.supervision is None or job is not view.supervision.supervisor
    )


def _deactivate(cluster: Cluster, namespace: str, resource: Mapping[str, Any], action: str) -> bool:
    query = {"labelSelector": f"{LABEL_WORKLOAD_OWNER}={resource['metadata'].get('uid')}"}
    path = object_path(KUEUE, namespace, "workloads")
    try:
        workloads = cluster.get(path, action, query).get("items") or []
    except ApiError as e:
        if e.status != 404:
            raise
        return False
    for workload in workloads:
        name = str(workload["metadata"]["name"])
        cluster.patch(
            object_path(KUEUE, namespace, "workloads", name), {"spec": {"active": False}}, action
        )
    return bool(workloads)


def delete(cluster: Cluster, namespace: str, view: AppView | None) -> None:
    """Delete all objects of an app. The cluster then deletes the app's pods and their logs.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app; nothing is done if it is missing.
    """
    if view is None:
        return
    locations = {
        "batch": (BATCH, "jobs"),
        "jobset": (JOBSET, "jobsets"),
        "volcano": (VOLCANO, "jobs"),
        "mcad": (MCAD, "appwrappers"),
    }
    api, plural = locations[view.api]
    for resource in view.objects:
        name = str(resource["metadata"]["name"])
        cluster.delete(object_path(api, namespace, plural, name), f"delete {name}")
        owners = resource["metadata"].get("ownerReferences") or ()
        if any(owner.get("name") == expiry_name(resource) for owner in owners):
            path = object_path(BATCH, namespace, "jobs", expiry_name(resource))
            cluster.delete(path, f"delete {expiry_name(resource)}")
    if view.api == "batch":
        path = object_path(CORE, namespace, "services", view.app_id)
        cluster.delete(path, f"delete the service {view.app_id}")
    if view.supervision is not None:
        for api, plural, name in supervisor.dependents(view.supervision):
            path = object_path(api, namespace, plural, name)
            cluster.delete(path, f"delete {name} of {plural}")
