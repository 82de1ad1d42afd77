"""Make the object for ``job_api=volcano``: one Volcano Job.

A role is one task if no argument, variable or overlay depends on the replica. Otherwise each
replica is a task, as in older releases of TorchX.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torchx_kit.role_templates import RoleTemplate
from torchx_sched_k8s.cluster.containers import pod_annotations
from torchx_sched_k8s.cluster.labels import (
    LABEL_REPLICA_ID,
    object_labels,
    role_labels,
)
from torchx_sched_k8s.cluster.names import AppNames, normalized_app_names
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.metadata import object_metadata
from torchx_sched_k8s.request.overlays import (
    JOB,
    POD,
    overlay_object,
    overlay_of,
    overlay_pod,
    substituted,
    with_container,
)
from torchx_sched_k8s.request.pods import REPLICA_MARK, Place, PodMaker
from torchx_sched_k8s.request.retries import policy_of, volcano_max_retry, volcano_policies
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

API_VERSION = "batch.volcano.sh/v1alpha1"


def make_job(app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
    """Return the Volcano Job of an app.

    Args:
        app: The app.
        opts: The scheduler's options.

    Raises:
        RequestError: An overlay is not valid, a name is too long and ``validate_spec`` is set, or
            replicas of a role that differ would have to be restarted together.
    """
    most = max(role.num_replicas for role in app.roles)
    # reserve space for the longest pod name: <app>-<role>-<replica>-0 for a task of one replica
    names = normalized_app_names(
        app.name,
        [role.name for role in app.roles],
        len(f"-{most - 1}-0"),
        shorten=not opts.validate_spec,
    )
    roles = [_RoleTasks(app, role, opts, names) for role in app.roles]
    for role in app.roles:
        if overlay_of(role, JOB):
            logging.getLogger(__name__).warning(
                "role %s: ignoring its overlay %s: Volcano has one Job for all roles; set the"
                " overlay on the AppDef",
                role.name,
                JOB,
            )
    rank0 = f"{roles[0].pod_name(0)}.{names.app_id}"
    tasks = []
    for role_idx, role_tasks in enumerate(roles):
        tasks += role_tasks.tasks(app, role_idx, rank0)
    spec: dict[str, Any] = {
        "schedulerName": "volcano",
        "queue": opts.queue,
        "tasks": tasks,
        "maxRetry": volcano_max_retry(app),
        "plugins": {"svc": ["--publish-not-ready-addresses"], "env": []},
    }
    if opts.priority_class:
        spec["priorityClassName"] = opts.priority_class
    if opts.ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = opts.ttl_seconds
    job = {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": object_metadata(app, names.app_id, object_labels(app, names.app_id), opts),
        "spec": spec,
    }
    values = macros.Values("", names.app_id, "0", ENV_RANK0_HOST)
    overlay = substituted(overlay_of(app, JOB), values)
    overlay_object(job, overlay, JOB, known_only=opts.known_only)
    return job


class _RoleTasks:
    """Makes the Volcano tasks of a role."""

    def __init__(self, app: AppDef, role: Role, opts: KubernetesOpts, names: AppNames) -> None:
        self.role = role
        self._opts = opts
        self._app_id = names.app_id
        self._name = names.roles[role.name]
        self._template = RoleTemplate(role)
        self._maker = PodMaker(self._template, opts, plain=True)
        self._overlay = overlay_of(role, POD)
        self._policies = volcano_policies(app, role, opts)
        self.equal = self._is_equal()

    def _is_equal(self) -> bool:
        """Return whether no argument, variable or overlay depends on the replica."""
        if self._template.constant and not self._overlay:
            return True
        if _names_a_replica(self._overlay, self._name):
            return False
        values = macros.Values("", self._app_id, REPLICA_MARK, ENV_RANK0_HOST)
        texts = [*self._template.args(values), *self._template.env(values).values()]
        if any(REPLICA_MARK in str(text) for text in texts):
            return False
        # `substituted` replaces the mark in overlays, so compare the overlays of two replicas
        first = macros.Values("", self._app_id, "0", ENV_RANK0_HOST)
        other = macros.Values("", self._app_id, "1", ENV_RANK0_HOST)
        return bool(substituted(self._overlay, first) == substituted(self._overlay, other))

    def pod_name(self, replica: int) -> str:
        """Return the name that Volcano gives to a replica's pod."""
        if self.equal:
            return f"{self._app_id}-{self._name}-{replica}"
        return f"{self._app_id}-{self._name}-{replica}-0"

    def tasks(self, app: AppDef, role_idx: int, rank0: str) -> list[dict[str, Any]]:
        """Return the tasks of the role.

        Args:
            app: The app.
            role_idx: Index of the role in the app.
            rank0: Host name of the first replica of the first role.

        Raises:
            RequestError: The role's replicas cannot be restarted together, or its overlay is not
                valid.
        """
        role = self.role
        if self.equal:
            labels = role_labels(app, role_idx, role, self._app_id)
            task = self._task(self._name, role.num_replicas, labels, 0, rank0)
            if role.min_replicas is not None:
                task["minAvailable"] = role.min_replicas
            return [task]
        alone = len(app.roles) == 1
        if role.max_retries > 0 and policy_of(role, self._opts) == RetryPolicy.ROLE and not alone:
            raise RequestError(
                f"role '{role.name}': RetryPolicy.ROLE restarts its replicas together, which"
                " Volcano cannot do if they differ (a macro or an overlay depends on the replica);"
                " use RetryPolicy.APPLICATION, which restarts the whole app"
            )
        tasks = []
        shared = role_labels(app, role_idx, role, self._app_id)
        for k in range(role.num_replicas):
            labels = {**shared, LABEL_REPLICA_ID: str(k)}
            task = self._task(f"{self._name}-{k}", 1, labels, k, rank0)
            if role.min_replicas is not None:
                task["minAvailable"] = 1 if k < role.min_replicas else 0
            tasks.append(task)
        return tasks

    def _task(
        self, name: str, replicas: int, labels: dict[str, str], replica: int, rank0: str
    ) -> dict[str, Any]:
        role, opts = self.role, self._opts
        place = Place(
            self._app_id,
            opts.namespace,
            labels,
            pod_annotations(role, name),
            rank0,
            replica=replica,
        )
        pod = self._maker.make(name, place)
        if self._overlay:
            overlay = substituted(self._overlay, place.values())
            only = None if self.equal else replica
            overlay = with_container(overlay, self._name, name, only, role.num_replicas)
            overlay_pod(pod, overlay, known_only=opts.known_only, fixed=False)
        task: dict[str, Any] = {"replicas": replicas, "name": name, "template": pod}
        if role.max_retries > 0:
            task["maxRetry"] = role.max_retries
            task["policies"] = [dict(policy) for policy in self._policies]
        return task


def _names_a_replica(overlay: Any, name: str) -> bool:
    """Return whether an overlay names the container of one replica, such as ``main-0``.

    Overlays for older releases contain such names in ``JOIN("containers", on="name")``, because
    each replica was a task of its own.
    """
    if isinstance(overlay, str):
        head, _, index = overlay.rpartition("-")
        return head == name and index.isdigit()
    if isinstance(overlay, Mapping):
        overlay = overlay.values()
    elif not isinstance(overlay, (list, tuple)):
        return False
    return any(_names_a_replica(part, name) for part in overlay)
