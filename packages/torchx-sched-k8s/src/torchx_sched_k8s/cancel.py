"""Cancelling and deleting apps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    LABEL_QUEUE,
    LABEL_WORKLOAD_OWNER,
    is_supervisor,
    labels_of,
    selector,
)
from torchx_sched_k8s.cluster.paths import (
    BATCH,
    CORE,
    JOBSET,
    KUEUE,
    MCAD,
    RBAC,
    VOLCANO,
    object_path,
)
from torchx_sched_k8s.status.job_states import has_ended, job_state, true_conditions
from torchx_sched_k8s.status.views import AppView
from torchx_specs.model.status import is_terminal

#: How long cancel waits for the end of a supervisor's pod, in seconds.
_PATIENCE = 15.0
_PAUSE = 0.3


def cancel(cluster: Cluster, namespace: str, view: AppView) -> None:
    """Ends an app's pods and keeps its objects, which say that it was cancelled.

    The pods go, and their logs with them. A supervisor ends before the others, which it could be
    making anew just now.
    """
    when = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    note = {"metadata": {"annotations": {ANNOTATION_CANCELLED: when}}}
    objects: Sequence[Mapping[str, Any]] = view.objects
    if view.supervisor is not None:
        objects = objects[1:]
        if not has_ended(view.supervisor):
            objects = _end_supervisor(cluster, namespace, view, note)
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
    return any(not is_terminal(job_state(job)[0]) for job in view.objects if not is_supervisor(job))


def _end_supervisor(
    cluster: Cluster, namespace: str, view: AppView, note: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Ends an app's supervisor; returns the Jobs of the roles that are there after that."""
    what = f"cancel {view.app_id}"
    path = object_path(BATCH, namespace, "jobs", view.app_id)
    cluster.patch(path, {**note, "spec": {"suspend": True}}, what)
    query = {"labelSelector": selector(instance=view.app_id)}
    until = time.monotonic() + _PATIENCE
    while True:
        jobs = cluster.get(object_path(BATCH, namespace, "jobs"), what, query).get("items") or []
        own = [job for job in jobs if is_supervisor(job)]
        # its controller has seen the suspension, and its pod has gone
        ended = all(_is_idle(job) for job in own)
        if ended or time.monotonic() > until:
            return [
                job
                for job in jobs
                if not is_supervisor(job) and "deletionTimestamp" not in job["metadata"]
            ]
        time.sleep(_PAUSE)


def _is_idle(job: Mapping[str, Any]) -> bool:
    if not true_conditions(job).keys() & {"Suspended", "Complete", "Failed"}:
        return False
    status = job.get("status") or {}
    return not status.get("active") and not status.get("terminating")


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
    if view.supervisor is not None:
        # they go with the supervisor, but for those that kubectl made
        others = [(CORE, "configmaps")]
        pod = view.supervisor["spec"]["template"]["spec"]
        if pod.get("serviceAccountName") == view.app_id:
            others += [(RBAC, "rolebindings"), (RBAC, "roles"), (CORE, "serviceaccounts")]
        for api, plural in others:
            path = object_path(api, namespace, plural, view.app_id)
            cluster.delete(path, f"delete {view.app_id} of {plural}")
