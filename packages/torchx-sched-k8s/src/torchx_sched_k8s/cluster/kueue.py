"""Kueue: suspend objects, also in its queues, and say why they wait.

An object in a queue has a Workload.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    LABEL_QUEUE,
    labels_of,
    object_path,
)
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: Versions of Kueue's API, the preferred one first. TorchX uses only fields that both have.
KUEUE_VERSIONS = ("v1beta1", "v1beta2")
_OWNER = "kueue.x-k8s.io/job-uid"


def workloads_of(
    cluster: Cluster, namespace: str, resource: Mapping[str, Any], action: str
) -> dict[str, Mapping[str, Any]]:
    """Return the Workloads of a Job or JobSet by their API paths.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        resource: The Job or JobSet.
        action: The action in error messages, as in "cannot <action>".

    Raises:
        ApiError: The cluster refuses the request, or has no usable version of Kueue (status 404).
    """
    query = {"labelSelector": f"{_OWNER}={resource['metadata'].get('uid')}"}
    for version in KUEUE_VERSIONS:
        path = object_path(f"/apis/kueue.x-k8s.io/{version}", namespace, "workloads")
        try:
            items = cluster.get(path, action, query).get("items") or ()
        except ApiError as e:
            if e.status != 404 or version == KUEUE_VERSIONS[-1]:
                raise
        else:
            return {f"{path}/{one['metadata']['name']}": one for one in items}
    return {}


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
    workloads: Mapping[str, Any] = {}
    if is_queued:
        cluster.patch(path, changes, action)
        try:
            workloads = workloads_of(cluster, namespace, resource, action)
        except ApiError as e:
            if e.status != 404:
                raise
        for workload in workloads:
            cluster.patch(workload, {"spec": {"active": False}}, action)
    if not workloads:
        cluster.patch(path, {**changes, "spec": {"suspend": True}}, action)
    if expires:
        logging.getLogger(__name__).warning(
            "%s is suspended, not finished, so that it stays until you delete it", name
        )


def waiting_in_queue(cluster: Cluster, namespace: str, objects: Iterable[Mapping[str, Any]]) -> str:
    """Return why the first suspended object waits in a queue; empty if there is no known reason."""
    waiting = next(
        (
            one
            for one in objects
            if LABEL_QUEUE in labels_of(one) and (one.get("spec") or {}).get("suspend")
        ),
        None,
    )
    if waiting is None:
        return ""
    queue = labels_of(waiting)[LABEL_QUEUE]
    try:
        found = workloads_of(cluster, namespace, waiting, "find Kueue's workload")
    except ApiError as e:
        if e.status == 404:
            return (
                f"waiting in Kueue's queue {queue}, but Kueue is not installed in this cluster;"
                " delete the app, and submit it without the option queue"
            )
        return ""  # the user may lack the right to read workloads
    for workload in found.values():
        for condition in (workload.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "QuotaReserved" and condition.get("status") == "False":
                reason = one_line(condition.get("message") or condition.get("reason") or "")
                return f"waiting in Kueue's queue {queue}: {reason}"
    return ""
