"""Cancel and delete apps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_sched_k8s.backends.supervision import is_supervisor
from torchx_sched_k8s.cluster.labels import ANNOTATION_CANCELLED
from torchx_sched_k8s.status.job_states import job_state
from torchx_sched_k8s.status.times import time_stamp
from torchx_sched_k8s.status.views import AppView
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def cancel(cluster: Cluster, namespace: str, view: AppView | None) -> None:
    """End an app's unfinished objects, and keep them, annotated as cancelled.

    Do nothing if the app has ended, or is missing. The cluster deletes the pods of these objects,
    and with the pods their logs.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app.
    """
    if view is None or view.state == AppState.SUCCEEDED:
        return
    if not is_terminal(view.state) or has_unfinished_jobs(view):
        when = time_stamp()
        changes = {"metadata": {"annotations": {ANNOTATION_CANCELLED: when}}}
        view.backend.cancel(cluster, namespace, view, changes, when)


def has_unfinished_jobs(view: AppView) -> bool:
    """Return whether an app has plain Jobs, apart from the supervisor, that run or wait.

    An ended app has such Jobs if a cancel was interrupted, or for a short time after another role
    has failed. Without plain Jobs, the result is False.
    """
    return view.supervision is not None and any(
        not is_terminal(job_state(job)[0]) for job in view.objects if not is_supervisor(job)
    )


def delete(cluster: Cluster, namespace: str, view: AppView | None) -> None:
    """Delete all objects of an app. A missing app is not an error.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app.
    """
    if view is not None:
        view.backend.delete(cluster, namespace, view)
