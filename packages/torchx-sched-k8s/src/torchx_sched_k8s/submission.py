"""Creating an app's objects: all of them, or none."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import Any

from torchx_sched_k8s.connection import (
    BATCH,
    CORE,
    JOBSET,
    MCAD,
    VOLCANO,
    ApiError,
    Cluster,
    RefusedRequestError,
    namespaced,
)
from torchx_sched_k8s.request import KubernetesJob
from torchx_specs.errors import BackendError

_PLURALS = {
    ("batch/v1", "Job"): (BATCH, "jobs"),
    ("v1", "Service"): (CORE, "services"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): (JOBSET, "jobsets"),
    ("batch.volcano.sh/v1alpha1", "Job"): (VOLCANO, "jobs"),
    ("workload.codeflare.dev/v1beta1", "AppWrapper"): (MCAD, "appwrappers"),
}
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
    # what others are to belong to comes before them
    objects = sorted(job.objects, key=lambda resource: resource.get("kind") == "Service")
    if ask_first:
        for resource in objects:
            _create(cluster, job.namespace, resource, dry_run=True)
    made: list[dict[str, Any]] = []
    try:
        for resource in objects:
            if resource.get("kind") == "Service":
                resource = _owned(resource, made)
            made.append(_create(cluster, job.namespace, resource))
    except BaseException:
        # also what may have been made although the answer was lost
        for resource in objects[: len(made) + 1]:
            with contextlib.suppress(BackendError):
                remove(cluster, job.namespace, resource)
        raise


def remove(cluster: Cluster, namespace: str, resource: Mapping[str, Any]) -> None:
    """Deletes an object and what it owns, if it is there."""
    path = namespaced(*_place(namespace, resource), str(resource["metadata"]["name"]))
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
        return cluster.create(namespaced(*place), resource, what, dry_run=dry_run)
    except ApiError as e:
        if e.status == 404 and place[0] in _MISSING and not isinstance(e, RefusedRequestError):
            raise RefusedRequestError(
                f"cannot {what}: {_MISSING[place[0]]}", e.status, e.reason, e.words
            ) from e
        if e.status == 409 and e.reason == "AlreadyExists":
            raise RefusedRequestError(
                f"cannot {what}: there is one of that name already; make a new dry run",
                e.status,
                e.reason,
                e.words,
            ) from e
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
