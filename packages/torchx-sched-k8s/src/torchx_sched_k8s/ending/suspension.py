"""Suspend objects, also in a queue of Kueue."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import LABEL_QUEUE, labels_of
from torchx_sched_k8s.cluster.paths import BATCH, object_path
from torchx_sched_k8s.cluster.workloads import workloads_of

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def expire(cluster: Cluster, namespace: str, path: str, resource: Mapping[str, Any]) -> None:
    """Let the cluster delete an object after the object's time to live, if it has one.

    A cluster deletes only *finished* Jobs and JobSets after ``ttlSecondsAfterFinished``
    (https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/). A suspended
    JobSet or Job never finishes, for example a Job that Kueue holds in a queue. When such an object
    is cancelled, it therefore gets an owner that finishes: the *expiry Job*, which has no pods and
    has the object's time to live. When the cluster deletes the expiry Job, the garbage collector
    deletes the object.

    If the cluster refuses a request, for example because the user may not create Jobs, log a
    warning: the object then stays until the user deletes it.

    Args:
        cluster: The cluster.
        namespace: Namespace of the object.
        path: API path of the object.
        resource: The object: a JobSet or a Job.
    """
    seconds = resource["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return
    name = expiry_name(resource)
    action = f"delete {resource['metadata']['name']} after {seconds} seconds"
    jobs = object_path(BATCH, namespace, "jobs")
    try:
        try:
            owner = cluster.create(jobs, _expiry_job(name, seconds), action)
        except ApiError as e:
            if e.status != 409:
                raise
            owner = cluster.get(f"{jobs}/{name}", action)  # an interrupted cancel created it
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name}
        owners = [{**reference, "uid": owner["metadata"]["uid"]}]
        cluster.patch(path, {"metadata": {"ownerReferences": owners}}, action)
    except ApiError as e:
        logging.getLogger(__name__).warning("%s; it stays until you delete it", e)


def delete_expiry_job(cluster: Cluster, namespace: str, resource: Mapping[str, Any]) -> None:
    """Delete the expiry Job of an object, if it has one."""
    name = expiry_name(resource)
    owners = resource["metadata"].get("ownerReferences") or ()
    if any(owner.get("name") == name for owner in owners):
        cluster.delete(object_path(BATCH, namespace, "jobs", name), f"delete {name}")


def expiry_name(resource: Mapping[str, Any]) -> str:
    """Return the name of an object's expiry Job."""
    return f"{resource['metadata']['name']}-ttl"


def _expiry_job(name: str, seconds: int) -> dict[str, Any]:
    # A Job of 0 completions completes without a pod (`syncJob` in the Job controller), but the API
    # requires a template.
    container = {"name": "none", "image": "none"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": 0,
            "parallelism": 0,
            "ttlSecondsAfterFinished": seconds,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


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
