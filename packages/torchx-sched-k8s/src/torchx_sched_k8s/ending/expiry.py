"""Delete cancelled objects after their time to live.

A cluster deletes only *finished* Jobs and JobSets after ``ttlSecondsAfterFinished``
(https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/). A suspended JobSet or
Job never finishes, for example a Job that Kueue holds in a queue. When such an object is cancelled,
it therefore gets an owner that finishes: the *expiry Job*, which has no pods and has the object's
time to live. When the cluster deletes the expiry Job, the garbage collector deletes the object.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.paths import BATCH, object_path

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster


def expire(cluster: Cluster, namespace: str, path: str, resource: Mapping[str, Any]) -> None:
    """Let the cluster delete an object after the object's time to live, if it has one.

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
