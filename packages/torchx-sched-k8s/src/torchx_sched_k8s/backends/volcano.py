"""The backend ``volcano``: one Volcano Job."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.role_templates import RoleTemplate
from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.cluster.events import waiting_reason
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    LABEL_APP_NAME,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    VOLCANO_INDEX,
    annotations_of,
    labels_of,
    min_replicas_of,
    object_labels,
    pod_annotations,
    role_labels,
)
from torchx_sched_k8s.cluster.names import AppNames, normalized_app_names
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.kubernetes_job import object_metadata
from torchx_sched_k8s.request.overlays import (
    JOB,
    POD,
    overlay_object,
    overlay_of,
    overlay_pod,
    substituted,
    with_container,
)
from torchx_sched_k8s.request.pods import Place, PodMaker
from torchx_sched_k8s.request.retries import (
    deciding_roles,
    policy_of,
    volcano_max_retry,
    volcano_policies,
)
from torchx_sched_k8s.status.job_states import (
    VOLCANO_JOB_STATES,
    condition_reason,
    phase_times,
    role_name_of,
)
from torchx_sched_k8s.status.lost_pods import (
    LostPods,
    failed_volcano_pods,
    replaced_volcano_pods,
)
from torchx_sched_k8s.status.views import AppView, RoleView, app_view
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENDS_APP_KEY, ENV_RANK0_HOST
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.model.templates import macros

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.pod_states import Pod

API_VERSION = "batch.volcano.sh/v1alpha1"


# The policy of a task whose success ends the Job.
_COMPLETES_JOB = {"event": "TaskCompleted", "action": "CompleteJob"}


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
        replicas = [macros.Values("", self._app_id, k, ENV_RANK0_HOST) for k in ("0", "1")]
        first, other = (
            (self._template.args(one), self._template.env(one), substituted(self._overlay, one))
            for one in replicas
        )
        return first == other

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
        if role.metadata.get(ENDS_APP_KEY) and role.num_replicas > 1:
            raise RequestError(
                f"role '{role.name}': the metadata {ENDS_APP_KEY} of a role whose replicas differ"
                " (a macro or an overlay depends on the replica): Volcano ends the Job when the"
                " first of them has succeeded; use job_api=jobset"
            )
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
        if role.metadata.get(ENDS_APP_KEY):
            task.setdefault("policies", []).append(dict(_COMPLETES_JOB))
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


class VolcanoBackend(Backend):
    """Runs an app as a Volcano Job.

    A role is one task if no argument, variable or overlay depends on the replica. Otherwise each
    replica is a task, as in older releases of TorchX.
    """

    name = "volcano"
    api_version = API_VERSION
    kind = "Job"
    plural = "jobs"
    missing = (
        "Volcano is not installed in this cluster in the version v1alpha1: install it, or use"
        " job_api=batch, which uses Kueue's queues"
    )
    index_label = VOLCANO_INDEX

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
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

    def problems(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        if len(deciding_roles(app)) > 1:
            yield (
                f"the metadata {ENDS_APP_KEY} of several roles: Volcano ends the Job when the first"
                " of them has succeeded; mark one role, or use job_api=jobset"
            )

    def warnings(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        for role in app.roles:
            action = volcano_policies(app, role, opts)[0]["action"]
            if role.max_retries > 0 and action != "RestartJob":
                yield (
                    f"role {role.name}: RetryPolicy.{policy_of(role, opts).value} is Volcano's"
                    f" {action} (version 1.11 or later), and Volcano counts these restarts for all"
                    " roles and replicas together; all of them may restart"
                    f" {volcano_max_retry(app) - 1} times, or fewer; job_api=batch counts them"
                    " exactly"
                )

    def view(self, app_id: str, objects: Sequence[Mapping[str, Any]]) -> AppView:
        [job] = objects
        spec, status = job.get("spec") or {}, job.get("status") or {}
        condition = status.get("state") or {}
        phase = str(condition.get("phase") or "")
        state = VOLCANO_JOB_STATES.get(phase, AppState.UNKNOWN) if phase else AppState.PENDING
        if ANNOTATION_CANCELLED in annotations_of(job) and state != AppState.SUCCEEDED:
            state = AppState.CANCELLED
        message = ""
        if state not in (AppState.SUCCEEDED, AppState.RUNNING):
            message = condition_reason(condition)
        roles: dict[int, RoleView] = {}
        tasks = spec.get("tasks") or ()
        for task in tasks:
            template = task["template"]
            name = (
                role_name_of(template) or str(task["name"]).rpartition("-")[0] or str(task["name"])
            )
            index = int(labels_of(template).get(LABEL_ROLE_INDEX) or 0)
            role = roles.setdefault(index, RoleView(index, name, 0, template, state, app_id))
            role.min_replicas = min_replicas_of(template)
            role.replicas += int(task.get("replicas") or 1)
            role.retries = int(task.get("maxRetry") or 0)
            role.wants_pods = not is_terminal(state)
            policies = [p for p in task.get("policies") or () if p != _COMPLETES_JOB]
            role.limit = None if policies or spec.get("policies") else 0
        ends = [name for name, reached in VOLCANO_JOB_STATES.items() if is_terminal(reached)]
        started, ended = phase_times(job, ["Running"], ends)
        # the failure after which Volcano gives up is also counted in `retryCount`
        most = int(spec.get("maxRetry") or 3) - 1
        return app_view(
            self,
            app_id,
            [job],
            state=state,
            message=message,
            roles=[roles[index] for index in sorted(roles)],
            restarts=min(int(status.get("retryCount") or 0), most),
            runs_again=not is_terminal(state) and any(map(_restarts_job, [spec, *tasks])),
            started=started,
            ended=ended,
        )

    def list(self, cluster: Cluster, namespace: str, action: str) -> Iterable[AppView]:
        # Volcano Jobs from older releases have no labels, so a label selector would miss them
        for one in cluster.list_items(self.path(namespace), action):
            if is_ours(one):
                yield self.view(str(one["metadata"]["name"]), [one])

    def lost_pods(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        pods: Mapping[int, Mapping[int, Sequence[Pod]]],
    ) -> dict[int, LostPods]:
        if view.state == AppState.FAILED:
            return failed_volcano_pods(view, pods)
        return replaced_volcano_pods(cluster, namespace, view, pods)

    def waiting_reason(self, cluster: Cluster, namespace: str, view: AppView) -> str:
        group = f"{view.app_id}-{view.objects[0]['metadata'].get('uid')}"
        return waiting_reason(cluster, namespace, group)

    def end(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        changes: Mapping[str, Any],
        when: str,
    ) -> None:
        [job] = view.objects
        action = f"cancel {view.app_id}"
        cluster.patch(self.path(namespace, view.app_id), changes, action)
        # Volcano deletes only finished Jobs after their time to live. A terminated Job is finished;
        # an aborted Job is not, because it can be resumed (`isJobFinished` in
        # pkg/controllers/garbagecollector/garbagecollector.go).
        expires = job["spec"].get("ttlSecondsAfterFinished") is not None
        phase = {"phase": "Terminated" if expires else "Aborted", "lastTransitionTime": when}
        path = self.path(namespace, view.app_id, "status")
        cluster.patch(path, {"status": {"state": phase}}, action)


def _restarts_job(part: Mapping[str, Any]) -> bool:
    """Return whether the policies of a Volcano Job or task may restart the whole Job."""
    return any(one.get("action") == "RestartJob" for one in part.get("policies") or ())


def is_ours(volcano_job: Mapping[str, Any]) -> bool:
    """Return whether TorchX made a Volcano Job; older releases labelled only the Job's pods."""
    tasks = (volcano_job.get("spec") or {}).get("tasks") or [{}]
    parts = volcano_job, tasks[0].get("template") or {}
    return any(LABEL_APP_NAME in labels_of(part) for part in parts)


VOLCANO = VolcanoBackend()
