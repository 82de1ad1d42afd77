"""The backends by the values of the option ``job_api``; find one app, or list all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.batch import BATCH
from torchx_sched_k8s.backends.jobset import JOBSET
from torchx_sched_k8s.backends.volcano import VOLCANO
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.status.views import AppView

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: The backends by the value of the option ``job_api``. The first one needs no operator.
BACKENDS: dict[str, Backend] = {one.name: one for one in (BATCH, JOBSET, VOLCANO)}


def find_app(
    cluster: Cluster, namespace: str, app_id: str, backends: Iterable[Backend]
) -> AppView | None:
    """Return the data of an app's objects, or None if the app does not exist.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        app_id: Name of the app in the cluster.
        backends: The APIs to query, the likely one first.

    Raises:
        ApiError: The cluster refuses a request. If the user may not read JobSets or Volcano Jobs,
            the search goes on in the other APIs; it fails only if the likely API was refused.
    """
    denied: ApiError | None = None
    for i, backend in enumerate(backends):
        try:
            view = backend.find(cluster, namespace, app_id)
        except ApiError as e:
            if e.status == 404:
                continue
            if e.status != 403 or not backend.missing:
                raise
            # 403 may also mean that the API is not installed
            denied = e if i == 0 else denied
            continue
        if view is not None:
            return view
    if denied is not None:
        raise denied
    return None


def list_apps(cluster: Cluster, namespace: str, backends: Iterable[Backend]) -> list[AppView]:
    """Return the data of all apps in a namespace, newest first.

    APIs that are not installed in the cluster, or that the user may not list, are left out; only
    the right to list plain Jobs is required.
    """
    action = f"list the apps of namespace {namespace}"
    views: list[AppView] = []
    for i, backend in enumerate(backends):
        try:
            views += backend.list(cluster, namespace, action)
        except ApiError as e:
            # 403 may also mean that the API is not installed
            if e.status != 404 and (e.status != 403 or i == 0):
                raise
    return sorted(views, key=_created, reverse=True)


def _created(view: AppView) -> str:
    return max(str(one["metadata"].get("creationTimestamp") or "") for one in view.objects)
