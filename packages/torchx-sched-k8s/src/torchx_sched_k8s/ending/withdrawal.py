"""Withdraw an app that waits for its start: in Kueue's queue, or for a node with room.

A suspended Job that was never resumed has no pods. One patch sets ``parallelism`` of such a Job to
0. The patch contains the resource version of the Job that was read, so the API server refuses the
patch if Kueue has admitted the Job in the meantime. If Kueue admits the Job after the patch, the
Job controller creates no pod.

:mod:`torchx_sched_k8s.ending.pod_withdrawal` withdraws a Job whose only pod waits for a node. Every
other Job that is not suspended stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_WITHDRAWN,
    MIN_PARALLELISM,
    annotations_of,
)
from torchx_sched_k8s.cluster.paths import BATCH, object_path
from torchx_sched_k8s.ending.pod_withdrawal import PodWithdrawal
from torchx_sched_k8s.status.job_states import true_conditions
from torchx_sched_k8s.status.times import time_stamp
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.views import AppView

# How long a withdrawal may take, in seconds, until the caller must repeat it. The cluster fails a
# deleted pod without a node within 20 seconds (`gcCheckPeriod` in
# pkg/controller/podgc/gc_controller.go of Kubernetes).
_TIMEOUT = 30.0
# The pause between two queries, in seconds.
_PAUSE = 0.25


def prevent_start(cluster: Cluster, namespace: str, view: AppView) -> bool:
    """Keep an app's program from ever starting, and return True if it has never started.

    Return False if the program may have started, if the Job does not exist or is not the only Job
    of the app, or if the app is not a plain Job. The app is then as before.

    If this function is interrupted, the next call continues from the annotations of the Job.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app.

    Raises:
        BackendError: The cluster does not answer, or it is not decided in time whether the app
            starts. The caller must call again.
    """
    if view.supervision is None or len(view.objects) != 1:
        return False
    name = str(view.objects[0]["metadata"]["name"])
    path, action = object_path(BATCH, namespace, "jobs", name), f"withdraw {name}"
    pod_withdrawal = PodWithdrawal(cluster, namespace, path, action)
    deadline = cluster.clock() + _TIMEOUT
    while True:
        job = cluster.get_or_none(path, action)
        if job is None:
            return False
        if ANNOTATION_WITHDRAWN in annotations_of(job):
            return True
        try:
            if was_never_resumed(job):
                _set_no_pods(cluster, path, action, job)
                return True
            decision = pod_withdrawal.advance(job)
        except ApiError as e:
            if e.status != 409:
                raise
            decision = None  # another program has changed the Job or the pod
        if decision is not None:
            return decision
        if cluster.clock() > deadline:
            raise BackendError(
                f"cannot {action}: after {_TIMEOUT:.0f} seconds, the cluster has not decided"
                " whether the Job starts; try again"
            )
        cluster.sleep(_PAUSE)


def _set_no_pods(cluster: Cluster, path: str, action: str, job: Mapping[str, Any]) -> None:
    when = time_stamp()
    changes = {
        "metadata": {"annotations": {ANNOTATION_WITHDRAWN: when}},
        "spec": {"parallelism": 0},
    }
    cluster.patch(path, changes, action, version=str(job["metadata"]["resourceVersion"]))


def was_never_resumed(job: Mapping[str, Any]) -> bool:
    """Return whether a Job has been suspended since its creation.

    A missing ``status.startTime`` is no proof, because Kueue clears the field when it suspends a
    Job again. ``metadata.generation`` is 1 until the spec changes for the first time.

    The result is False for a Job that accepts partial admission, because Kueue changes the
    ``parallelism`` of such a Job.
    """
    metadata, status = job["metadata"], job.get("status") or {}
    return bool(
        job["spec"].get("suspend")
        and metadata.get("generation") == 1
        and not metadata.get("deletionTimestamp")
        and MIN_PARALLELISM not in annotations_of(job)
        and not status.get("startTime")
        and not status.get("active")
        and not {"Complete", "Failed"} & true_conditions(job).keys()
    )
