"""Create all objects of an app, or none."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.submission import announce, withdraw
from torchx_sched_k8s import submission, supervisor
from torchx_sched_k8s.cluster.errors import ApiError, RefusedRequestError
from torchx_sched_k8s.cluster.labels import (
    LABEL_APP_NAME,
    LABEL_UNIQUE_NAME,
    labels_of,
    selector,
)
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


class SupervisorRightsError(ApiError):
    """The user may not create the supervisor's service account, role or role binding."""


def submit(cluster: Cluster, job: KubernetesJob, *, check_first: bool, app_id: str = "") -> None:
    """Create the objects of an app; after a failure, delete those that were created.

    If the user may not create the supervisor's account, submit the app without a supervisor. If the
    supervisor is also needed for restarts, raise the error instead.

    Args:
        cluster: The cluster.
        job: The objects.
        check_first: Whether to check all objects by a dry run before the first is created.
        app_id: The id to announce; empty for an array, whose elements have ids of their own.

    Raises:
        BackendError: The cluster does not answer, or refuses the request.
        RequestError: The cluster rejects the request as invalid.
    """
    try:
        _submit(cluster, job.namespace, job.objects, check_first, app_id)
    except SupervisorRightsError as e:
        objects = supervisor.unsupervised(job.objects)
        if objects is None:
            raise
        logging.getLogger(__name__).warning(
            "%s; without this right, the app has no supervisor: if one of its roles fails for good,"
            " the others run on until the app is deleted; set -cfg fail_together=False to accept"
            " this, or use job_api=jobset",
            e,
        )
        _submit(cluster, job.namespace, objects, check_first, app_id)


def _submit(
    cluster: Cluster,
    namespace: str,
    requested: Sequence[dict[str, Any]],
    check_first: bool,
    app_id: str,
) -> None:
    jobs = [one for one in requested if _is_plain_job(one)]
    owner = supervisor.find_owner(requested)
    first = owner or next(iter(jobs), None)
    # create owners before the objects that they own
    objects = sorted(requested, key=lambda one: (one is not first, one.get("kind") == "Service"))
    if first is not None:
        _remove_abandoned(cluster, namespace, first)
    if check_first:
        for resource in objects:
            _check(cluster, namespace, resource)
    created: list[dict[str, Any]] = []
    announce(app_id)
    try:
        for resource in objects:
            changed = resource
            if _is_plain_job(resource):
                changed = _held(resource, submission.record(jobs) if resource is first else {})
            if owner is not None and resource is not owner:
                changed = _owned(changed, created[:1])
            elif resource.get("kind") in ("Service", "ConfigMap"):
                changed = _owned(changed, created)
            created.append(_create(cluster, namespace, changed))
        for resource in objects[::-1]:
            if _is_plain_job(resource):
                _start(cluster, namespace, resource, is_first=resource is first)
    except BaseException:
        is_left = False
        # include the object whose creation failed: only the response may have been lost
        for resource in objects[: len(created) + 1]:
            try:
                remove(cluster, namespace, resource)
            except BackendError as e:
                is_left = True
                logging.getLogger(__name__).warning("an object may be left in the cluster: %s", e)
        if not is_left:
            withdraw()
        raise


def _is_plain_job(resource: Mapping[str, Any]) -> bool:
    return resource.get("apiVersion") == "batch/v1" and resource.get("kind") == "Job"


def _held(job: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a suspended copy of a Job, so that no role runs before all objects of the app exist.

    Args:
        job: The Job.
        metadata: Labels and annotations to add.
    """
    held = copy.deepcopy(dict(job))
    held["spec"]["suspend"] = True
    for field, values in metadata.items():
        held["metadata"][field] = {**(held["metadata"].get(field) or {}), **values}
    return held


def _start(cluster: Cluster, namespace: str, job: Mapping[str, Any], *, is_first: bool) -> None:
    """Start a Job, unless its request is suspended: Kueue starts such a Job.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        job: The Job in the request.
        is_first: Whether the Job was created first. It is started last, and its start also removes
            the mark of an unfinished submission.
    """
    changes: dict[str, Any] = {}
    if not job["spec"].get("suspend"):
        changes["spec"] = {"suspend": False}
    if is_first:
        changes["metadata"] = submission.removal()
    if changes:
        path = object_path(*_location(namespace, job), str(job["metadata"]["name"]))
        cluster.patch(path, changes, f"start {_name(job)}")


def _remove_abandoned(cluster: Cluster, namespace: str, first: Mapping[str, Any]) -> None:
    """Delete unfinished apps of the new app's name whose submitting processes have ended.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        first: The first Job of the new app.
    """
    from torchx_sched_k8s.cancel import delete
    from torchx_sched_k8s.status.describe import find_app

    name = labels_of(first).get(LABEL_APP_NAME, "")
    wanted = f"{selector()},{submission.LABEL_UNFINISHED},{LABEL_APP_NAME}={name}"
    path, action = object_path(BATCH, namespace, "jobs"), "find unfinished submissions"
    try:
        jobs = list(cluster.list_items(path, action, {"labelSelector": wanted}))
    except ApiError:
        return  # the user may lack the right to list Jobs; later requests report other problems
    for job in jobs:
        app_id = labels_of(job).get(LABEL_UNIQUE_NAME, "")
        view = find_app(cluster, namespace, app_id) if submission.is_abandoned(job) else None
        if view is not None:
            delete(cluster, namespace, view)
            logging.getLogger(__name__).warning(
                "deleted app %s:%s: the process that submitted it ended before all roles existed",
                namespace,
                app_id,
            )


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
    """Return a copy of an object with owner references.

    The cluster deletes the object when all its owners are deleted.
    """
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
            error = f"{e}; {hint}"
            raise SupervisorRightsError(error, e.status, e.reason, e.message) from e
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
