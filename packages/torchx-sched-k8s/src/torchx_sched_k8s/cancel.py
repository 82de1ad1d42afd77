"""Cancelling and deleting apps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
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
from torchx_sched_k8s.status.job_states import job_state
from torchx_sched_k8s.status.views import AppView
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def cancel(cluster: Cluster, namespace: str, view: AppView) -> None:
    """Ends an app's pods and keeps its objects, which say that it was cancelled.

    The pods go, and their logs with them. A supervisor ends before the others, which it could be
    making anew just now.
    """
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    note = {"metadata": {"annotations": {ANNOTATION_CANCELLED: when}}}
    objects: Sequence[Mapping[str, Any]] = view.objects
    if view.supervision is not None:
        objects = objects[1:]
        if not view.supervision.is_decided:
            objects = supervisor.stop(cluster, namespace, view.app_id, note)
    for resource in objects:
        name = str(resource["metadata"]["name"])
        what = f"cancel {name}"
        if view.api == "volcano":
            path = object_path(VOLCANO, namespace, "jobs", name)
            cluster.patch(path, note, what)
            state = {"status": {"state": {"phase": "Aborted"}}}
            cluster.patch(object_path(VOLCANO, namespace, "jobs", name, "status"), state, what)
            continue
        if view.api == "batch" and is_terminal(job_state(resource)[0]):
            continue
        api, plural = (BATCH, "jobs") if view.api == "batch" else (JOBSET, "jobsets")
        path = object_path(api, namespace, plural, name)
        if LABEL_QUEUE in labels_of(resource):
            # Kueue would undo the suspension: its own object decides
            cluster.patch(path, note, what)
            if _deactivate(cluster, namespace, resource, what):
                continue
        cluster.patch(path, {**note, "spec": {"suspend": True}}, what)


def runs_on(view: AppView) -> bool:
    """Returns True if part of an app that was cancelled has not been: somebody was interrupted."""
    if view.api != "batch":
        return False
    return any(
        not is_terminal(job_state(job)[0])
        for job in view.objects
        if view.supervision is None or job is not view.supervision.supervisor
    )


def _deactivate(cluster: Cluster, namespace: str, resource: Mapping[str, Any], what: str) -> bool:
    query = {"labelSelector": f"{LABEL_WORKLOAD_OWNER}={resource['metadata'].get('uid')}"}
    path = object_path(KUEUE, namespace, "workloads")
    try:
        workloads = cluster.get(path, what, query).get("items") or []
    except ApiError as e:
        if e.status != 404:
            raise
        return False
    for workload in workloads:
        name = str(workload["metadata"]["name"])
        cluster.patch(
            object_path(KUEUE, namespace, "workloads", name), {"spec": {"active": False}}, what
        )
    return bool(workloads)


def delete(cluster: Cluster, namespace: str, view: AppView) -> None:
    """Removes an app's objects and, with them, its pods and logs."""
    places = {
        "batch": (BATCH, "jobs"),
        "jobset": (JOBSET, "jobsets"),
        "volcano": (VOLCANO, "jobs"),
        "mcad": (MCAD, "appwrappers"),
    }
    api, plural = places[view.api]
    for resource in view.objects:
        name = str(resource["metadata"]["name"])
        cluster.delete(object_path(api, namespace, plural, name), f"delete {name}")
    if view.api == "batch":
        path = object_path(CORE, namespace, "services", view.app_id)
        cluster.delete(path, f"delete the service {view.app_id}")
    if view.supervision is not None:
        for api, plural, name in supervisor.dependents(view.supervision):
            path = object_path(api, namespace, plural, name)
            cluster.delete(path, f"delete {name} of {plural}")
