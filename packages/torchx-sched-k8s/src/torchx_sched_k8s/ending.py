"""Cancelling and deleting apps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from torchx_sched_k8s.connection import (
    BATCH,
    CORE,
    JOBSET,
    KUEUE,
    MCAD,
    VOLCANO,
    ApiError,
    Cluster,
    namespaced,
)
from torchx_sched_k8s.labels import (
    ANNOTATION_CANCELLED,
    LABEL_QUEUE,
    LABEL_WORKLOAD_OWNER,
    labels_of,
)
from torchx_sched_k8s.views import AppView, job_state
from torchx_specs.status import is_terminal


def cancel(cluster: Cluster, namespace: str, view: AppView) -> None:
    """Ends an app's pods and keeps its objects, which say that it was cancelled.

    The pods go, and their logs with them.
    """
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    note = {"metadata": {"annotations": {ANNOTATION_CANCELLED: when}}}
    for resource in view.objects:
        name = str(resource["metadata"]["name"])
        what = f"cancel {name}"
        if view.api == "volcano":
            path = namespaced(VOLCANO, namespace, "jobs", name)
            cluster.patch(path, note, what)
            state = {"status": {"state": {"phase": "Aborted"}}}
            cluster.patch(namespaced(VOLCANO, namespace, "jobs", name, "status"), state, what)
            continue
        if view.api == "batch" and is_terminal(job_state(resource)[0]):
            continue
        api, plural = (BATCH, "jobs") if view.api == "batch" else (JOBSET, "jobsets")
        path = namespaced(api, namespace, plural, name)
        if LABEL_QUEUE in labels_of(resource):
            # Kueue would undo the suspension: its own object decides
            cluster.patch(path, note, what)
            if _deactivate(cluster, namespace, resource, what):
                continue
        cluster.patch(path, {**note, "spec": {"suspend": True}}, what)


def _deactivate(cluster: Cluster, namespace: str, resource: Mapping[str, Any], what: str) -> bool:
    query = {"labelSelector": f"{LABEL_WORKLOAD_OWNER}={resource['metadata'].get('uid')}"}
    path = namespaced(KUEUE, namespace, "workloads")
    try:
        workloads = cluster.get(path, what, query).get("items") or []
    except ApiError as e:
        if e.status != 404:
            raise
        return False
    for workload in workloads:
        name = str(workload["metadata"]["name"])
        cluster.patch(
            namespaced(KUEUE, namespace, "workloads", name), {"spec": {"active": False}}, what
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
        cluster.delete(namespaced(api, namespace, plural, name), f"delete {name}")
    if view.api == "batch":
        path = namespaced(CORE, namespace, "services", view.app_id)
        cluster.delete(path, f"delete the service {view.app_id}")
