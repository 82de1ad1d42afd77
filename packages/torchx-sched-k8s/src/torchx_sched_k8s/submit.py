"""Create all objects of an app, or none."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s import supervisor
from torchx_sched_k8s.cluster.errors import ApiError, RefusedRequestError
from torchx_sched_k8s.cluster.paths import BATCH, CORE, JOBSET, MCAD, RBAC, VOLCANO, object_path
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

_PLURALS = {
    ("batch/v1", "Job"): (BATCH, "jobs"),
    ("v1", "Service"): (CORE, "services"),
    ("v1", "ConfigMap"): (CORE, "configmaps"),
    ("v1", "ServiceAccount"): (CORE, "serviceaccounts"),
    ("rbac.authorization.k8s.io/v1", "Role"): (RBAC, "roles"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): (RBAC, "rolebindings"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): (JOBSET, "jobsets"),
    ("batch.volcano.sh/v1alpha1", "Job"): (VOLCANO, "jobs"),
    ("workload.codeflare.dev/v1beta1", "AppWrapper"): (MCAD, "appwrappers"),
}
_NO_DRY_RUN = "does not support dry run"
#: Error messages for APIs that are not installed in the cluster.
_MISSING = {
    JOBSET: "JobSet is not installed in this cluster: install it, or use job_api=batch",
    VOLCANO: "Volcano is not installed in this cluster: install it, or use job_api=batch, which"
    " uses Kueue's queues",
    MCAD: "AppWrappers (MCAD) are not installed in this cluster: use the scheduler kubernetes",
}


def submit(cluster: Cluster, job: KubernetesJob, *, check_first: bool) -> None:
    """Create the objects of an app; after a failure, delete those that were created.

    Args:
        cluster: The cluster.
        job: The objects.
        check_first: Whether to check all objects by a dry run before the first is created.

    Raises:
        BackendError: The cluster does not answer, or refuses the request.
        RequestError: The cluster rejects the request as invalid.
    """
    owner = supervisor.find_owner(job.objects)
    # create owners before the objects that they own
    objects = sorted(job.objects, key=lambda one: (one is not owner, one.get("kind") == "Service"))
    if check_first:
        for resource in objects:
            _check(cluster, job.namespace, resource)
    created: list[dict[str, Any]] = []
    try:
        for resource in objects:
            if resource is owner:
                # its pod needs the other objects, so it must not start before they exist
                resource = {**resource, "spec": {**resource["spec"], "suspend": True}}
            elif owner is not None:
                resource = _owned(resource, created[:1])
            elif resource.get("kind") == "Service":
                resource = _owned(resource, created)
            created.append(_create(cluster, job.namespace, resource))
        if owner is not None:
            path = object_path(*_location(job.namespace, owner), str(owner["metadata"]["name"]))
            cluster.patch(path, {"spec": {"suspend": False}}, f"start {_name(owner)}")
    except BaseException:
        # include the object whose creation failed: only the response may have been lost
        for resource in objects[: len(created) + 1]:
            try:
                remove(cluster, job.namespace, resource)
            except BackendError as e:
                logging.getLogger(__name__).warning("an object may be left in the cluster: %s", e)
        raise


def _check(cluster: Cluster, namespace: str, resource: Mapping[str, Any]) -> None:
    """Check by a dry run whether the cluster would create an object."""
    try:
        _create(cluster, namespace, resource, dry_run=True)
    except ApiError as e:
        if _NO_DRY_RUN in e.message:
            return  # a webhook does not support dry runs: it checks the object at its creation
        # a dry run does not create the Role, so a binding to it gets 404; missing rights get 403
        if e.status != 404 or resource.get("kind") != "RoleBinding":
            raise
        if isinstance(e, RefusedRequestError):
            raise


def remove(cluster: Cluster, namespace: str, resource: Mapping[str, Any]) -> None:
    """Delete an object and its dependents. A missing object is not an error.

    Args:
        cluster: The cluster.
        namespace: Namespace to use if the object's metadata contains none.
        resource: The object.
    """
    path = object_path(*_location(namespace, resource), str(resource["metadata"]["name"]))
    cluster.delete(path, f"delete {_name(resource)}")


def _owned(resource: Mapping[str, Any], owners: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an object with owner references: the cluster deletes it together with its owners."""
    owned = copy.deepcopy(dict(resource))
    owned["metadata"]["ownerReferences"] = [
        {
            "apiVersion": one.get("apiVersion") or "batch/v1",
            "kind": one.get("kind") or "Job",
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
        }
        for one in owners
        if one["metadata"].get("uid")
    ]
    return owned


def _create(
    cluster: Cluster, namespace: str, resource: Mapping[str, Any], *, dry_run: bool = False
) -> dict[str, Any]:
    location = _location(namespace, resource)
    action = f"create {_name(resource)}"
    try:
        return cluster.create(object_path(*location), resource, action, dry_run=dry_run)
    except ApiError as e:
        if e.status == 404 and location[0] in _MISSING and not isinstance(e, RefusedRequestError):
            raise RefusedRequestError(
                f"cannot {action}: {_MISSING[location[0]]}", e.status, e.reason, e.message
            ) from e
        if e.status == 409 and e.reason == "AlreadyExists":
            raise RefusedRequestError(
                f"cannot {action}: an object of that name exists; make a new dry run",
                e.status,
                e.reason,
                e.message,
            ) from e
        hint = supervisor.rights_hint(resource)
        if e.status == 403 and hint:
            raise ApiError(f"{e}; {hint}", e.status, e.reason, e.message) from e
        raise


def _location(namespace: str, resource: Mapping[str, Any]) -> tuple[str, str, str]:
    kind = (str(resource.get("apiVersion")), str(resource.get("kind")))
    try:
        api, plural = _PLURALS[kind]
    except KeyError:
        raise RefusedRequestError(
            f"the request contains an object of kind {kind[1]} ({kind[0]});"
            f" valid kinds: {', '.join(f'{k} ({a})' for a, k in _PLURALS)}",
            400,
        ) from None
    return api, str((resource.get("metadata") or {}).get("namespace") or namespace), plural


def _name(resource: Mapping[str, Any]) -> str:
    return f"the {resource.get('kind')} {resource['metadata']['name']}"
