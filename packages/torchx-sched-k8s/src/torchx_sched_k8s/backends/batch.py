"""The backend ``batch``: plain Jobs, on any cluster, and a headless Service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.supervision import (
    Supervision,
    find_supervisor,
    install_hint,
    is_restarted,
    supervision_of,
)
from torchx_sched_k8s.cluster.containers import min_replicas_of
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_ENDED,
    LABEL_ROLE_INDEX,
    LABEL_UNIQUE_NAME,
    annotations_of,
    labels_of,
    selector,
)
from torchx_sched_k8s.cluster.paths import BATCH as BATCH_API
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_sched_k8s.ending.suspension import suspend
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.batch import make_objects
from torchx_sched_k8s.request.retries import policy_of
from torchx_sched_k8s.status.job_states import failure_limit, job_state, role_name_of
from torchx_sched_k8s.status.lost_pods import LostPods, lost_pods_of_jobs
from torchx_sched_k8s.status.times import end_of, job_start
from torchx_sched_k8s.status.views import AppView, RoleView, app_view, combined, indices
from torchx_sched_k8s.submission.unfinished import unfinished_message
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.status.pod_states import Pod

#: Label of the Jobs of a JobSet.
LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"


class BatchBackend(Backend):
    """Runs each role as an Indexed Job."""

    name = "batch"
    api = BATCH_API
    api_version = "batch/v1"
    kind = "Job"
    plural = "jobs"

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "List", "items": make_objects(app, opts)}

    def problems(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        if opts.queue and len(app.roles) > 1:
            yield (
                f"option queue={opts.queue}: with job_api=batch Kueue admits the Job of each of the"
                f" {len(app.roles)} roles by itself, so some roles may wait for quota that others"
                " hold; use job_api=jobset, which Kueue admits as a whole"
            )
        if is_restarted(app, opts) and find_supervisor() is None:
            yield (
                "option retry_policy=APPLICATION: with job_api=batch, a supervisor restarts the"
                f" app; run: {install_hint()}; or use job_api=jobset"
            )
        for role in app.roles:
            if (
                role.max_retries > 0
                and role.num_replicas > 1
                and policy_of(role, opts) == RetryPolicy.ROLE
            ):
                yield (
                    f"role '{role.name}': RetryPolicy.ROLE restarts its {role.num_replicas}"
                    " replicas together, which plain Jobs cannot do; use job_api=volcano, or -cfg"
                    " retry_policy=APPLICATION, which restarts the whole app, or -cfg"
                    " retry_policy=REPLICA, which restarts the failed replica alone (for torchrun)"
                )

    def warnings(self, app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
        # The default policy of a role is APPLICATION, but plain Jobs restart only the failed
        # replica. Only the option retry_policy=APPLICATION adds a supervisor that restarts the app.
        if is_restarted(app, opts):
            return
        if len(app.roles) > 1 and not opts.fail_together:
            yield (
                f"app {app.name}: when one of its {len(app.roles)} roles fails for good, plain Jobs"
                " do not end the others; job_api=jobset ends them, and so does -cfg"
                " fail_together=True"
            )
        elif len(app.roles) > 1 and find_supervisor() is None:
            yield (
                f"app {app.name}: when one of its {len(app.roles)} roles fails for good, the others"
                " run on until the app is deleted, because the supervisor that ends them is not"
                f" installed; run: {install_hint()}; or use job_api=jobset"
            )
        for role in app.roles:
            alone = sum(one.num_replicas for one in app.roles) == 1
            if (
                role.max_retries > 0
                and policy_of(role, opts) == RetryPolicy.APPLICATION
                and not alone
            ):
                yield (
                    f"role {role.name}: with plain Jobs a retry restarts the failed replica alone"
                    " (as torchrun needs); -cfg retry_policy=APPLICATION restarts the whole app,"
                    " and so do job_api=jobset and job_api=volcano"
                )

    def view(self, app_id: str, objects: Sequence[Mapping[str, Any]]) -> AppView:
        return self._view(app_id, supervision_of(objects))

    def _view(self, app_id: str, supervision: Supervision) -> AppView:
        several = len(supervision.role_jobs) > 1
        states, roles, messages = [], [], []
        for i, job in enumerate(supervision.role_jobs):
            state, message = supervision.state_of(job)
            spec, status = job["spec"], job.get("status") or {}
            states.append(state)
            if message:
                messages.append((state, f"{role_name_of(job)}: {message}" if several else message))
            retries = supervision.max_restarts(job)
            limit, each = failure_limit(spec)
            replaced = supervision.is_replaced(job)
            roles.append(
                RoleView(
                    int(labels_of(job).get(LABEL_ROLE_INDEX) or i),
                    role_name_of(job),
                    int(spec.get("completions") or 1),
                    spec["template"],
                    state,
                    str(job["metadata"]["name"]),
                    min_replicas_of(spec["template"]),
                    int(
                        retries or spec.get("backoffLimitPerIndex") or spec.get("backoffLimit") or 0
                    ),
                    frozenset() if replaced else frozenset(indices(status.get("completedIndexes"))),
                    frozenset() if replaced else frozenset(indices(status.get("failedIndexes"))),
                    wants_pods=not (is_terminal(state) or spec.get("suspend") or replaced),
                    ended_for=annotations_of(job).get(ANNOTATION_ENDED, ""),
                    owner_uid=str(job["metadata"].get("uid") or ""),
                    started=str(status.get("startTime") or ""),
                    failures=int(status.get("failed") or 0),
                    limit=limit,
                    limit_is_per_replica=each,
                )
            )
        state = combined([*states, *[supervision.missing_state] * supervision.missing])
        message = next((text for of, text in messages if of == state), "")
        if supervision.ended and state != AppState.SUCCEEDED:
            state, message = supervision.ended
        elif state == AppState.FAILED and not all(map(is_terminal, states)):
            active = supervision.is_active
            message += "; other roles still run, "
            message += "the supervisor ends them" if active else "delete the app to end them"
        view = app_view(self, app_id, state, message, roles, supervision.objects)
        view.restarts = supervision.restarts
        view.supervision = supervision
        view.unfinished = unfinished_message(supervision.objects)
        view.runs_again = supervision.may_restart and not is_terminal(state)
        view.started, view.ended = job_start(supervision.role_jobs), end_of(supervision.role_jobs)
        return view

    def find(self, cluster: Cluster, namespace: str, app_id: str) -> AppView | None:
        query = {"labelSelector": f"{selector(instance=app_id)},!{LABEL_JOBSET}"}
        found = cluster.get(self.path(namespace), f"find the app {app_id}", query)
        jobs = found.get("items") or []
        return self._view(app_id, supervision_of(jobs, cluster, namespace)) if jobs else None

    def list(self, cluster: Cluster, namespace: str, action: str) -> Iterable[AppView]:
        jobs: dict[str, list[Mapping[str, Any]]] = {}
        query = {"labelSelector": f"{selector()},!{LABEL_JOBSET}"}
        for job in cluster.list_items(self.path(namespace), action, query):
            jobs.setdefault(labels_of(job).get(LABEL_UNIQUE_NAME) or "", []).append(job)
        return [self.view(name, found) for name, found in jobs.items() if name]

    def watch_query(self, app_id: str) -> dict[str, str]:
        return {"labelSelector": selector(instance=app_id)}

    def lost_pods(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        pods: Mapping[int, Mapping[int, Sequence[Pod]]],
    ) -> dict[int, LostPods]:
        return lost_pods_of_jobs(cluster, namespace, view, pods)

    def cancel(
        self,
        cluster: Cluster,
        namespace: str,
        view: AppView,
        changes: Mapping[str, Any],
        when: str,
    ) -> None:
        jobs: Iterable[Mapping[str, Any]] = view.objects
        if view.supervision is not None and view.supervision.supervisor is not None:
            jobs = view.supervision.stop(cluster, namespace, view.app_id, changes)
        for job in jobs:
            if not is_terminal(job_state(job)[0]):
                path = self.path(namespace, str(job["metadata"]["name"]))
                suspend(cluster, namespace, path, job, changes, deadline=True)

    def delete(self, cluster: Cluster, namespace: str, view: AppView) -> None:
        super().delete(cluster, namespace, view)
        path = object_path(CORE, namespace, "services", view.app_id)
        cluster.delete(path, f"delete the service {view.app_id}")
        for api, plural, name in view.supervision.dependents() if view.supervision else ():
            cluster.delete(object_path(api, namespace, plural, name), f"delete {name} of {plural}")


BATCH = BatchBackend()
