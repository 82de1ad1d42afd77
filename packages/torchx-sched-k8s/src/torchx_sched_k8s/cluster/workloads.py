"""Kueue's Workloads: an object in a queue has one, which says why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.paths import object_path

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
