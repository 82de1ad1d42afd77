"""Creating an app's objects: all of them, or none."""

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
#: What an API is called, and what to do without it.
_MISSING = {
    JOBSET: "JobSet is not installed in this cluster: install it, or use job_api=batch",
    VOLCANO: "Volcano is not installed in this cluster: install it, or use job_api=batch, whose"
    " queues are those of Kueue",
    MCAD: "AppWrappers (MCAD) are not installed in this cluster: use the scheduler kubernetes",
}


def submit(cluster: Cluster, job: KubernetesJob, *, ask_first: bool) -> None:
    """Creates the objects of an app; a failure leaves none of them.

    Args:
        cluster: where
        job: what
        ask_first: whether to ask the cluster about all of them before the first is made

    Raises:
        BackendError: the cluster does not answer, or refuses
        RequestError: the cluster finds the request wrong
    """
    owner = supervisor.find_owner(job.objects)
    # owners are created before the objects that they own
    objects = sorted(job.objects, key=lambda one: (one is not owner, one.get("kind") == "Service"))
    if ask_first:
        for resource in objects:
            _ask(cluster, job.namespace, resource)
    made: list[dict[str, Any]] = []
    try:
        for resource in objects:
            if resource is owner:
                # its pod needs the objects that follow
                resource = {**resource, "spec": {**resource["spec"], "suspend": True}}
            elif owner is not None:
                resource = _owned(resource, made[:1])
            elif resource.get("kind") == "Service":
                resource = _owned(resource, made)
            made.append(_create(cluster, job.namespace, resource))
        if owner is not None:
            path = object_path(*_place(job.namespace, owner), str(owner["metadata"]["name"]))
            cluster.patch(path, {"spec": {"suspend": False}}, f"start {_called(owner)}")
    except BaseException:
        # also what may have been made although the answer was lost
        for resource in objects[: len(made) + 1]:
            try:
                remove(cluster, job.namespace, resource)
            except BackendError as e:
                logging.getLogger(__name__).warning("it may be left behind: %s", e)
        raise


def _ask(cluster: Cluster, namespace: str, resource: Mapping[str, Any]) -> None:
    """Asks the cluster whether it would take an object."""
    try:
        _create(cluster, namespace, resource, dry_run=True)
    except ApiError as e:
        if _NO_DRY_RUN in e.message:
            return  # a webhook that cannot be asked is met when the object is made
        # the role that a binding names is not there yet: whoever may not bind any is told so
        if e.status != 404 or resource.get("kind") != "RoleBinding":
            raise
        if isinstance(e, RefusedRequestError):
            raise


def remove(cluster: Cluster, namespace: str, resource: Mapping[str, Any]) -> None:
    """Deletes an object and what it owns, if it is there."""
    path = object_path(*_place(namespace, resource), str(resource["metadata"]["name"]))
    cluster.delete(path, f"delete {_called(resource)}")


def _owned(resource: Mapping[str, Any], made: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns an object that goes away with those that were made before it."""
    owned = copy.deepcopy(dict(resource))
    owned["metadata"]["ownerReferences"] = [
        {
            "apiVersion": one.get("apiVersion") or "batch/v1",
            "kind": one.get("kind") or "Job",
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
        }
        for one in made
        if one["metadata"].get("uid")
    ]
    return owned


def _create(
    cluster: Cluster, namespace: str, resource: Mapping[str, Any], *, dry_run: bool = False
) -> dict[str, Any]:
    place = _place(namespace, resource)
    what = f"create {_called(resource)}"
    try:
        return cluster.create(object_path(*place), resource, what, dry_run=dry_run)
    except ApiError as e:
        if e.status == 404 and place[0] in _MISSING and not isinstance(e, RefusedRequestError):
            raise RefusedRequestError(
                f"cannot {what}: {_MISSING[place[0]]}", e.status, e.reason, e.message
            ) from e
        if e.status == 409 and e.reason == "AlreadyExists":
            raise RefusedRequestError(
                f"cannot {what}: there is one of that name already; make a new dry run",
                e.status,
                e.reason,
                e.message,
            ) from e
        hint = supervisor.rights_hint(resource)
        if e.status == 403 and hint:
            raise ApiError(f"{e}; {hint}", e.status, e.reason, e.message) from e
        raise


def _place(namespace: str, resource: Mapping[str, Any]) -> tuple[str, str, str]:
    kind = (str(resource.get("apiVersion")), str(resource.get("kind")))
    try:
        api, plural = _PLURALS[kind]
    except KeyError:
        raise RefusedRequestError(
            f"a request cannot hold {kind[1]} of {kind[0]};"
            f" it can: {', '.join(f'{k} of {a}' for a, k in _PLURALS)}",
            400,
        ) from None
    return api, str((resource.get("metadata") or {}).get("namespace") or namespace), plural


def _called(resource: Mapping[str, Any]) -> str:
    return f"the {resource.get('kind')} {resource['metadata']['name']}"
