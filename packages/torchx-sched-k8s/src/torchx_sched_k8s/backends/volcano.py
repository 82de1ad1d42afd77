"""The backend ``volcano``: one Volcano Job."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    LABEL_APP_NAME,
    LABEL_ROLE_INDEX,
    VOLCANO_INDEX,
    annotations_of,
    labels_of,
    object_labels,
)
from torchx_sched_k8s.cluster.names import normalized_app_names
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.kubernetes_job import deciding_roles, object_metadata, policy_of
from torchx_sched_k8s.request.overlays import JOB, overlay_object, overlay_of, pod_template
from torchx_sched_k8s.status.events import (
    LostPods,
    failed_volcano_pods,
    replaced_volcano_pods,
    waiting_reason,
)
from torchx_sched_k8s.status.views import (
    AppView,
    RoleView,
    app_view,
    condition_reason,
    phase_times,
    role_name_of,
)
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.pod_states import Pod

API_VERSION = "batch.volcano.sh/v1alpha1"
#: Maps phases of Volcano Jobs to states.
JOB_STATES: dict[str, AppState] = {
    "Pending": AppState.PENDING,
    "Aborting": AppState.RUNNING,
    "Aborted": AppState.CANCELLED,
    "Running": AppState.RUNNING,
    "Restarting": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Completing": AppState.RUNNING,
    "Terminating": AppState.RUNNING,
    "Terminated": AppState.FAILED,
    "Failed": AppState.FAILED,
}
#: Maps the retry policy of a role to the policies of the role's Volcano tasks. The action
#: ``RestartPod`` exists since Volcano 1.11 (its release notes: fine-grained fault recovery).
RETRY_POLICIES: dict[str, list[dict[str, str]]] = {
    policy: [{"event": event, "action": action} for event in ("PodEvicted", "PodFailed")]
    for policy, action in (
        (RetryPolicy.REPLICA, "RestartPod"),
        (RetryPolicy.APPLICATION, "RestartJob"),
        (RetryPolicy.ROLE, "RestartTask"),
    )
}
#: The policy of a task whose success ends the Job.
_COMPLETES_JOB = {"event": "TaskCompleted", "action": "CompleteJob"}


class VolcanoBackend(Backend):
    """Runs an app as a Volcano Job, in which each role is a task."""

    name = "volcano"
    api_version = API_VERSION
    kind = "Job"
    missing = (
        "Volcano is not installed in this cluster in the version v1alpha1: install it, or use"
        " job_api=batch, which uses Kueue's queues"
    )
    index_label = VOLCANO_INDEX
    index_path = f"metadata.labels['{VOLCANO_INDEX}']"
    make_names = staticmethod(normalized_app_names)

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
        app_id, places = self.places(app, opts)
        tasks = []
        for role, name, place in places:
            if overlay_of(role, JOB, app_id):
                logging.getLogger(__name__).warning(
                    "role %s: ignoring its overlay %s: Volcano has one Job for all roles; set the"
                    " overlay on the AppDef",
                    role.name,
                    JOB,
                )
            pod = pod_template(role, name, place, opts, plain=True)
            task: dict[str, Any] = {"replicas": role.num_replicas, "name": name, "template": pod}
            if role.min_replicas is not None:
                task["minAvailable"] = role.min_replicas
            if role.max_retries > 0:
                task["maxRetry"] = role.max_retries
                task["policies"] = volcano_policies(app, role, opts)
            if role.metadata.get(ENDS_APP_KEY):
                task.setdefault("policies", []).append(dict(_COMPLETES_JOB))
            tasks.append(task)
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
            "metadata": object_metadata(app, app_id, object_labels(app, app_id), opts),
            "spec": spec,
        }
        overlay_object(job, overlay_of(app, JOB, app_id), JOB, opts)
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
        state = JOB_STATES.get(phase, AppState.UNKNOWN) if phase else AppState.PENDING
        if ANNOTATION_CANCELLED in annotations_of(job) and state != AppState.SUCCEEDED:
            state = AppState.CANCELLED
        has_message = state not in (AppState.SUCCEEDED, AppState.RUNNING)
        roles: dict[int, RoleView] = {}
        tasks = spec.get("tasks") or ()
        for task in tasks:
            template = task["template"]
            name = role_name_of(template) or str(task["name"])
            index = int(labels_of(template).get(LABEL_ROLE_INDEX) or 0)
            role = roles.setdefault(index, RoleView(index, name, 0, template, state, app_id))
            role.replicas += int(task.get("replicas") or 1)
            role.retries = int(task.get("maxRetry") or 0)
            role.wants_pods = not is_terminal(state)
            policies = [p for p in task.get("policies") or () if p != _COMPLETES_JOB]
            role.limit = None if policies or spec.get("policies") else 0
        ends = [name for name, reached in JOB_STATES.items() if is_terminal(reached)]
        started, ended = phase_times(job, ["Running"], ends)
        # the failure after which Volcano gives up is also counted in `retryCount`
        most = int(spec.get("maxRetry") or 3) - 1
        return app_view(
            self,
            app_id,
            [job],
            state=state,
            message=condition_reason(condition) if has_message else "",
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
        deleted = failed_volcano_pods(view, pods) if view.state == AppState.FAILED else {}
        return deleted or replaced_volcano_pods(cluster, namespace, view, pods)

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


def volcano_policies(app: AppDef, role: Role, opts: KubernetesOpts) -> list[dict[str, str]]:
    """Return the policies of a role's Volcano task.

    Volcano counts restarts exactly only if it restarts the whole Job. The action is therefore
    ``RestartJob`` if the role or replica to restart is the whole app.
    """
    policy = policy_of(role, opts)
    if len(app.roles) == 1 and (role.num_replicas == 1 or policy == RetryPolicy.ROLE):
        policy = RetryPolicy.APPLICATION
    return [dict(one) for one in RETRY_POLICIES[policy]]


def volcano_max_retry(app: AppDef) -> int:
    """Return the field ``maxRetry`` of a Volcano Job: the number of restarts plus one.

    The number of restarts is the smallest ``max_retries`` of the roles that have retries.
    Volcano adds 1 to ``retryCount`` after each failure, and fails the Job when ``retryCount``
    equals ``maxRetry`` (``pkg/controllers/job/state/restarting.go``). For an app without retries,
    the result is 0, which Volcano replaces by its default 3. This has no effect, because the app
    has no restart policy.
    """
    restarts = [role.max_retries for role in app.roles if role.max_retries > 0]
    return min(restarts) + 1 if restarts else 0


def _restarts_job(part: Mapping[str, Any]) -> bool:
    """Return whether the policies of a Volcano Job or task may restart the whole Job."""
    return any(one.get("action") == "RestartJob" for one in part.get("policies") or ())


def is_ours(volcano_job: Mapping[str, Any]) -> bool:
    """Return whether TorchX made a Volcano Job; older releases labelled only the Job's pods."""
    tasks = (volcano_job.get("spec") or {}).get("tasks") or [{}]
    parts = volcano_job, tasks[0].get("template") or {}
    return any(LABEL_APP_NAME in labels_of(part) for part in parts)


VOLCANO = VolcanoBackend()
