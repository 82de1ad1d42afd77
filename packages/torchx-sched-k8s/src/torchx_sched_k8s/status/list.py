"""List the apps of a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import LABEL_UNIQUE_NAME, labels_of, selector
from torchx_sched_k8s.cluster.paths import BATCH, JOBSET, VOLCANO, object_path
from torchx_sched_k8s.status.times import job_start
from torchx_sched_k8s.status.views import AppView, batch_view, is_ours, jobset_view, volcano_view

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

_LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"


def list_apps(cluster: Cluster, namespace: str) -> list[AppView]:
    """Return the data of all apps in a namespace, newest first.

    APIs that are not installed in the cluster, or that the user may not list, are left out; only
    the right to list plain Jobs is required.
    """
    action = f"list the apps of namespace {namespace}"
    of_torchx = {"labelSelector": selector()}
    jobs: dict[str, list[Mapping[str, Any]]] = {}
    query = {"labelSelector": f"{selector()},!{_LABEL_JOBSET}"}
    for job in cluster.list_items(object_path(BATCH, namespace, "jobs"), action, query):
        name = labels_of(job).get(LABEL_UNIQUE_NAME)
        if name:
            jobs.setdefault(name, []).append(job)
    views = [batch_view(name, found) for name, found in jobs.items()]
    path = object_path(JOBSET, namespace, "jobsets")
    jobsets = [
        jobset_view(str(one["metadata"]["name"]), one)
        for one in _if_installed(cluster, path, action, of_torchx)
    ]
    if jobsets:
        _set_starts(cluster, namespace, action, jobsets)
    views += jobsets
    # Volcano Jobs from older releases have no labels, so a label selector would miss them
    path = object_path(VOLCANO, namespace, "jobs")
    views += [
        volcano_view(str(one["metadata"]["name"]), one)
        for one in _if_installed(cluster, path, action, {})
        if is_ours(one)
    ]
    return sorted(views, key=_created, reverse=True)


def _set_starts(cluster: Cluster, namespace: str, action: str, views: list[AppView]) -> None:
    """Set the start times of JobSets from their Jobs: a JobSet itself has no start time."""
    jobs: dict[str, list[Mapping[str, Any]]] = {}
    query = {"labelSelector": f"{selector()},{_LABEL_JOBSET}"}
    for job in cluster.list_items(object_path(BATCH, namespace, "jobs"), action, query):
        jobs.setdefault(labels_of(job).get(_LABEL_JOBSET, ""), []).append(job)
    for view in views:
        view.started = job_start(jobs.get(view.app_id, ()))


def _if_installed(
    cluster: Cluster, path: str, action: str, query: Mapping[str, object]
) -> Iterator[dict[str, Any]]:
    try:
        yield from cluster.list_items(path, action, query)
    except ApiError as e:
        # 403 may also mean that the API is not installed
        if e.status not in (403, 404):
            raise


def _created(view: AppView) -> str:
    return max(str(one["metadata"].get("creationTimestamp") or "") for one in view.objects)
