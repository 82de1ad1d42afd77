"""Suspend objects, also in a queue of Kueue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import LABEL_QUEUE, LABEL_WORKLOAD_OWNER, labels_of
from torchx_sched_k8s.cluster.paths import KUEUE, object_path
from torchx_sched_k8s.ending.expiry import expire

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
    """Suspend a JobSet or a Job, and let the cluster delete it if it has a time to live.

    Kueue would resume a suspended object, unless the object's Workload is inactive.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        path: API path of the object.
        resource: The object.
        changes: Other changes to merge into the object.
        deadline: Whether to end a running object with a time to live by a deadline. The cluster
            deletes only finished Jobs, and a suspended Job is not finished. A deadline of one
            second fails a Job ("Job termination and cleanup" in
            https://kubernetes.io/docs/concepts/workloads/controllers/job/).
    """
    action = f"cancel {resource['metadata']['name']}"
    spec = resource["spec"]
    if LABEL_QUEUE in labels_of(resource):
        cluster.patch(path, changes, action)
        if _deactivate(cluster, namespace, resource, action):
            expire(cluster, namespace, path, resource)
            return
    if deadline and not spec.get("suspend") and "ttlSecondsAfterFinished" in spec:
        cluster.patch(path, {**changes, "spec": {"activeDeadlineSeconds": 1}}, action)
        return
    cluster.patch(path, {**changes, "spec": {"suspend": True}}, action)
    expire(cluster, namespace, path, resource)


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
