"""Suspend objects, also in a queue of Kueue."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import LABEL_QUEUE, labels_of
from torchx_sched_k8s.cluster.workloads import workloads_of

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def suspend(
    cluster: Cluster,
    namespace: str,
    path: str,
    resource: Mapping[str, Any],
    changes: Mapping[str, Any],
    *,
    deadline: bool,
) -> None:
    """Suspend a JobSet or a Job.

    Kueue would resume a suspended object, unless the object's Workload is inactive.

    A cluster deletes only *finished* objects after ``ttlSecondsAfterFinished``
    (https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/), and a suspended
    object never finishes. Log a warning if such an object has a time to live.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        path: API path of the object.
        resource: The object.
        changes: Other changes to merge into the object.
        deadline: Whether to end a running object with a time to live by a deadline instead. A
            deadline of one second fails a Job ("Job termination and cleanup" in
            https://kubernetes.io/docs/concepts/workloads/controllers/job/).
    """
    name = resource["metadata"]["name"]
    action = f"cancel {name}"
    spec = resource["spec"]
    expires = spec.get("ttlSecondsAfterFinished") is not None
    is_queued = LABEL_QUEUE in labels_of(resource)
    if deadline and expires and not is_queued and not spec.get("suspend"):
        cluster.patch(path, {**changes, "spec": {"activeDeadlineSeconds": 1}}, action)
        return
    if is_queued:
        cluster.patch(path, changes, action)
    if not is_queued or not _deactivate(cluster, namespace, resource, action):
        cluster.patch(path, {**changes, "spec": {"suspend": True}}, action)
    if expires:
        logging.getLogger(__name__).warning(
            "%s is suspended, not finished, so that it stays until you delete it", name
        )


def _deactivate(cluster: Cluster, namespace: str, resource: Mapping[str, Any], action: str) -> bool:
    """Deactivate the Workload of an object; return False if it has none."""
    try:
        workloads = workloads_of(cluster, namespace, resource, action)
    except ApiError as e:
        if e.status != 404:
            raise
        return False
    for path in workloads:
        cluster.patch(path, {"spec": {"active": False}}, action)
    return bool(workloads)
