"""The backend ``jobset``: one JobSet, which starts and ends all roles together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.batch import BATCH, LABEL_JOBSET
from torchx_sched_k8s.cluster.containers import min_replicas_of
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    annotations_of,
    labels_of,
    selector,
)
from torchx_sched_k8s.cluster.paths import JOBSET as JOBSET_API
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.jobset import API_VERSION, make_jobset
from torchx_sched_k8s.request.retries import policy_of
from torchx_sched_k8s.status.job_states import (
    condition_reason,
    failure_limit,
    role_name_of,
    suspension_reason,
    true_conditions,
)
from torchx_sched_k8s.status.lost_pods import LostPods, lost_pods_of_jobs
from torchx_sched_k8s.status.times import end_of, job_start
from torchx_sched_k8s.status.views import AppView, RoleView, app_view
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.pod_states import Pod

#: Action of a JobSet's failure policy: a restart that does not count towards ``maxRestarts``.
_UNLIMITED_RESTARTS = "RestartJobSetAndIgnoreMaxRestarts"


class JobSetBackend(Backend):
    """Runs an app as a JobSet."""

    name = "jobset"
    api = JOBSET_API
    api_version = API_VERSION
    kind = "JobSet"
    plural = "jobsets"
    missing = "JobSet is not installed in this cluster: install it, or use job_api=batch"

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
        return make_jobset(app, opts)

    def problems(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        for role in app.roles:
            together = role.max_retries > 0 and policy_of(role, opts) == RetryPolicy.ROLE
            if together and len(app.roles) > 1:
                yield (
                    f"role '{role.name}': RetryPolicy.ROLE restarts one role of {len(app.roles)},"
                    " which a JobSet cannot do; use job_api=volcano, or -cfg"
                    " retry_policy=APPLICATION, which restarts the whole app, or -cfg"
                    " retry_policy=REPLICA, which restarts the failed replica alone (for torchrun)"
                )

    def view(self, app_id: str, objects: Sequence[Mapping[str, Any]]) -> AppView:
        [jobset] = objects
        spec, status = jobset.get("spec") or {}, jobset.get("status") or {}
        true = true_conditions(jobset)
        counts = status.get("replicatedJobsStatus") or ()
        message = ""
        if "Completed" in true or status.get("terminalState") == "Completed":
            state = AppState.SUCCEEDED
        elif ANNOTATION_CANCELLED in annotations_of(jobset):
            state = AppState.CANCELLED
            message = f"cancelled {annotations_of(jobset)[ANNOTATION_CANCELLED]}"
        elif "Failed" in true or status.get("terminalState") == "Failed":
            state, message = AppState.FAILED, condition_reason(true.get("Failed") or {})
        elif spec.get("suspend"):
            state, message = AppState.PENDING, suspension_reason(jobset)
        elif any(one.get("ready") for one in counts):
            state = AppState.RUNNING
        else:
            state = AppState.PENDING if counts else AppState.SUBMITTED
        policy = spec.get("failurePolicy") or {}
        roles = []
        for i, one in enumerate(spec.get("replicatedJobs") or ()):
            job = one["template"]
            inner = job["spec"]
            limit, each = failure_limit(inner)
            roles.append(
                RoleView(
                    i,
                    role_name_of(job) or str(one["name"]),
                    int(inner.get("completions") or 1),
                    inner["template"],
                    owner=f"{app_id}-{one['name']}-0",
                    min_replicas=min_replicas_of(inner["template"]),
                    retries=int(
                        inner.get("backoffLimitPerIndex") or policy.get("maxRestarts") or 0
                    ),
                    wants_pods=not is_terminal(state) and not spec.get("suspend"),
                    limit=limit,
                    limit_is_per_replica=each,
                )
            )
        view = app_view(self, app_id, state, message, roles, [jobset])
        view.restarts = int(status.get("restarts") or 0)
        view.runs_again = not is_terminal(state) and _jobset_restarts(policy, status)
        view.ended = end_of([jobset])
        return view

    def list(self, cluster: Cluster, namespace: str, action: str) -> Iterable[AppView]:
        views = list(super().list(cluster, namespace, action))
        if views:
            # a JobSet itself has no start time
            jobs: dict[str, list[Mapping[str, Any]]] = {}
            query = {"labelSelector": f"{selector()},{LABEL_JOBSET}"}
            for job in cluster.list_items(BATCH.path(namespace), action, query):
                jobs.setdefault(labels_of(job).get(LABEL_JOBSET, ""), []).append(job)
            for view in views:
                view.started = job_start(jobs.get(view.app_id, ()))
        return views

    def lost_pods(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        pods: Mapping[int, Mapping[int, Sequence[Pod]]],
    ) -> dict[int, LostPods]:
        return lost_pods_of_jobs(cluster, namespace, view, pods)


def _jobset_restarts(policy: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether the failure policy of a JobSet may restart the JobSet once more."""
    if any(r.get("action") == _UNLIMITED_RESTARTS for r in policy.get("rules") or ()):
        return True
    counted = status.get("restartsCountTowardsMax", status.get("restarts"))
    return int(counted or 0) < int(policy.get("maxRestarts") or 0)


JOBSET = JobSetBackend()
