"""The backend ``volcano``: one Volcano Job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.cluster.containers import min_replicas_of
from torchx_sched_k8s.cluster.events import waiting_reason
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    LABEL_APP_NAME,
    LABEL_ROLE_INDEX,
    VOLCANO_INDEX,
    annotations_of,
    labels_of,
)
from torchx_sched_k8s.cluster.paths import VOLCANO as VOLCANO_API
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.retries import policy_of, volcano_max_retry, volcano_policies
from torchx_sched_k8s.request.volcano import API_VERSION, make_job
from torchx_sched_k8s.status.job_states import VOLCANO_JOB_STATES, condition_reason, role_name_of
from torchx_sched_k8s.status.lost_pods import (
    LostPods,
    failed_volcano_pods,
    replaced_volcano_pods,
)
from torchx_sched_k8s.status.times import phase_times
from torchx_sched_k8s.status.views import AppView, RoleView, app_view
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.pod_states import Pod


class VolcanoBackend(Backend):
    """Runs an app as a Volcano Job."""

    name = "volcano"
    api = VOLCANO_API
    api_version = API_VERSION
    kind = "Job"
    plural = "jobs"
    missing = (
        "Volcano is not installed in this cluster: install it, or use job_api=batch, which uses"
        " Kueue's queues"
    )
    index_label = VOLCANO_INDEX

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
        return make_job(app, opts)

    def problems(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        if opts.succeeded_count is not None or opts.succeeded_indexes is not None:
            yield (
                "options succeeded_count and succeeded_indexes: Volcano has no success policy for"
                " one role; use job_api=batch or jobset, or set `spec.minSuccess`, the number of"
                " pods of all roles, in an overlay V1Job on the AppDef"
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
            role = roles.setdefault(index, RoleView(index, name, 0, template, owner=app_id))
            role.min_replicas = min_replicas_of(template)
            role.replicas += int(task.get("replicas") or 1)
            role.retries = int(task.get("maxRetry") or 0)
            role.wants_pods = not is_terminal(state)
            role.limit = None if task.get("policies") or spec.get("policies") else 0
        ordered = [roles[index] for index in sorted(roles)]
        view = app_view(self, app_id, state, message, ordered, [job])
        # the failure after which Volcano gives up is also counted in `retryCount`
        most = int(spec.get("maxRetry") or 3) - 1
        view.restarts = min(int(status.get("retryCount") or 0), most)
        view.runs_again = not is_terminal(state) and any(map(_restarts_job, [spec, *tasks]))
        ends = [name for name, reached in VOLCANO_JOB_STATES.items() if is_terminal(reached)]
        view.started, view.ended = phase_times(job, ["Running"], ends)
        return view

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
            return failed_volcano_pods(cluster, namespace, view, pods)
        return replaced_volcano_pods(cluster, namespace, view, pods)

    def waiting_reason(self, cluster: Cluster, namespace: str, view: AppView) -> str:
        group = f"{view.app_id}-{view.objects[0]['metadata'].get('uid')}"
        return waiting_reason(cluster, namespace, group)

    def cancel(
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
