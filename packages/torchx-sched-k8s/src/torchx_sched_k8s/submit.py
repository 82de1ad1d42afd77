"""Create all objects of an app, or none."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.submission import announce, withdraw
from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.batch import (
    BATCH,
    LABEL_UNFINISHED,
    finished_mark,
    is_abandoned,
    unfinished_mark,
)
from torchx_sched_k8s.backends.supervision import find_owner, find_supervisor
from torchx_sched_k8s.cluster.errors import ApiError, RefusedRequestError
from torchx_sched_k8s.cluster.labels import (
    LABEL_APP_NAME,
    LABEL_UNIQUE_NAME,
    labels_of,
    object_path,
    selector,
)
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

_NO_DRY_RUN = "does not support dry run"
#: Only supervisors have objects of these kinds.
_ACCOUNT_KINDS = frozenset({"ServiceAccount", "Role", "RoleBinding"})
_OWN_ACCOUNT = (
    "or name an existing account with the rights to get, create, patch and delete jobs and to get"
    " configmaps (with requeue, also to list, watch and patch pods): -cfg"
    " restarts_service_account=NAME"
)


class SupervisorRightsError(ApiError):
    """The user may not create the supervisor's service account, role or role binding."""


def submit(
    cluster: Cluster,
    job: KubernetesJob,
    backends: Iterable[Backend],
    *,
    check_first: bool,
    app_id: str = "",
) -> None:
    """Create the objects of an app; after a failure, delete those that were created.

    If the user may not create the supervisor's account, submit the app without a supervisor. If the
    supervisor is also needed for restarts, raise the error instead.

    Args:
        cluster: The cluster.
        job: The objects.
        backends: The backends whose objects the app may have.
        check_first: Whether to check all objects by a dry run before the first is created.
        app_id: The id to announce; empty for an array, whose elements have ids of their own.

    Raises:
        BackendError: The cluster does not answer, or refuses the request.
        RequestError: The cluster rejects the request as invalid.
    """
    submission = _Submission(cluster, job.namespace, backends)
    try:
        submission.submit(job.objects, check_first, app_id)
    except SupervisorRightsError as e:
        plugin = find_supervisor()
        objects = None if plugin is None else plugin.unsupervised(job.objects)
        if objects is None:
            raise
        logging.getLogger(__name__).warning(
            "%s; without this right, the app has no supervisor: if one of its roles fails for good,"
            " the others run on until the app is deleted; set -cfg fail_together=False to accept"
            " this, or use job_api=jobset",
            e,
        )
        submission.submit(objects, check_first, app_id)


class _Submission:
    """Creates the objects of one app.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app, for objects whose metadata contains none.
        backends: The backends whose objects the app may have.
    """

    def __init__(self, cluster: Cluster, namespace: str, backends: Iterable[Backend]) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._missing = {(one.api_version, one.kind): one.missing for one in backends}

    def submit(self, requested: Sequence[dict[str, Any]], check_first: bool, app_id: str) -> None:
        """Create the objects; :func:`submit` describes the arguments."""
        jobs = [one for one in requested if _is_plain_job(one)]
        owner = find_owner(requested)
        first = owner or next(iter(jobs), None)
        # create owners before the objects that they own
        objects = sorted(
            requested, key=lambda one: (one is not first, one.get("kind") == "Service")
        )
        if first is not None:
            self._remove_abandoned(first)
        if check_first:
            for resource in objects:
                self._check(resource)
        created: list[dict[str, Any]] = []
        announce(app_id)
        try:
            for resource in objects:
                changed = resource
                if _is_plain_job(resource):
                    changed = _held(resource, unfinished_mark(jobs) if resource is first else {})
                if owner is not None and resource is not owner:
                    changed = _owned(changed, created[:1])
                elif created and not _is_plain_job(resource):
                    changed = _owned(changed, created)
                created.append(self._create(changed))
            for resource in objects[::-1]:
                if _is_plain_job(resource):
                    self._start(resource, is_first=resource is first)
        except BaseException:
            is_left = False
            # include the object whose creation failed: only the response may have been lost
            for resource in objects[: len(created) + 1]:
                try:
                    path = self._path(resource, str(resource["metadata"]["name"]))
                    self._cluster.delete(path, f"delete {_name(resource)}")
                except BackendError as e:
                    is_left = True
                    logging.getLogger(__name__).warning(
                        "an object may be left in the cluster: %s", e
                    )
            if not is_left:
                withdraw()
            raise

    def _start(self, job: Mapping[str, Any], *, is_first: bool) -> None:
        """Start a Job, unless its request is suspended: Kueue starts such a Job.

        Args:
            job: The Job in the request.
            is_first: Whether the Job was created first. It is started last, and its start also
                removes the mark of an unfinished submission.
        """
        changes: dict[str, Any] = {}
        if not job["spec"].get("suspend"):
            changes["spec"] = {"suspend": False}
        if is_first:
            changes["metadata"] = finished_mark()
        if changes:
            path = self._path(job, str(job["metadata"]["name"]))
            self._cluster.patch(path, changes, f"start {_name(job)}")

    def _remove_abandoned(self, first: Mapping[str, Any]) -> None:
        """Delete unfinished apps of the new app's name whose submitting processes have ended.

        Args:
            first: The first Job of the new app.
        """
        name = labels_of(first).get(LABEL_APP_NAME, "")
        wanted = f"{selector()},{LABEL_UNFINISHED},{LABEL_APP_NAME}={name}"
        query = {"labelSelector": wanted}
        path = BATCH.path(self._namespace)
        try:
            jobs = list(self._cluster.list_items(path, "find unfinished submissions", query))
        except ApiError:
            return  # the user may lack the right to list Jobs; later requests report other problems
        for job in jobs:
            app_id = labels_of(job).get(LABEL_UNIQUE_NAME, "")
            if not is_abandoned(job):
                continue
            view = BATCH.find(self._cluster, self._namespace, app_id)
            if view is not None:
                BATCH.delete(self._cluster, self._namespace, view)
                logging.getLogger(__name__).warning(
                    "deleted app %s:%s: the process that submitted it ended before all roles"
                    " existed",
                    self._namespace,
                    app_id,
                )

    def _check(self, resource: Mapping[str, Any]) -> None:
        """Check by a dry run whether the cluster would create an object."""
        try:
            self._create(resource, dry_run=True)
        except ApiError as e:
            # a dry run does not create the Role, so a binding to it gets 404, not 403
            role_is_missing = e.status == 404 and not isinstance(e, RefusedRequestError)
            is_binding = resource.get("kind") == "RoleBinding"
            # a webhook that does not support dry runs checks the object at its creation
            if _NO_DRY_RUN not in e.message and not (is_binding and role_is_missing):
                raise

    def _create(self, resource: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        path, action = self._path(resource), f"create {_name(resource)}"
        try:
            return self._cluster.create(path, resource, action, dry_run=dry_run)
        except ApiError as e:
            problem = ""
            missing = self._missing.get(_kind(resource))
            if e.status == 404 and not isinstance(e, RefusedRequestError) and missing:
                problem = f"{missing} ('torchx doctor' shows the versions)"
            elif e.status == 409 and e.reason == "AlreadyExists":
                problem = "an object of that name exists; make a new dry run"
            if problem:
                raise RefusedRequestError(
                    f"cannot {action}: {problem}", e.status, e.reason, e.message
                ) from e
            if e.status == 403 and resource.get("kind") in _ACCOUNT_KINDS:
                raise SupervisorRightsError(
                    f"{e}; {_OWN_ACCOUNT}", e.status, e.reason, e.message
                ) from e
            raise

    def _path(self, resource: Mapping[str, Any], name: str = "") -> str:
        namespace = str((resource.get("metadata") or {}).get("namespace") or self._namespace)
        version, kind = _kind(resource)
        api = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return object_path(api, namespace, f"{kind.lower()}s", name)


def _is_plain_job(resource: Mapping[str, Any]) -> bool:
    return _kind(resource) == (BATCH.api_version, BATCH.kind)


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


def _kind(resource: Mapping[str, Any]) -> tuple[str, str]:
    return str(resource.get("apiVersion")), str(resource.get("kind"))


def _name(resource: Mapping[str, Any]) -> str:
    return f"the {resource.get('kind')} {resource['metadata']['name']}"
