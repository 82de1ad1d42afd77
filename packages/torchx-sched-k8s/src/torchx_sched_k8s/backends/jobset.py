"""The backend ``jobset``: one JobSet, which starts and ends all roles together."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.batch import (
    BATCH,
    LABEL_JOBSET,
    job_spec,
    suspend_for_kueue,
)
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    ANNOTATION_ROLE_NAME,
    annotations_of,
    labels_of,
    object_labels,
    selector,
)
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.kubernetes_job import deciding_roles, object_metadata, policy_of
from torchx_sched_k8s.request.overlays import (
    JOBSET_KIND,
    overlay_job,
    overlay_object,
    overlay_of,
)
from torchx_sched_k8s.status.views import (
    AppView,
    app_view,
    condition_reason,
    end_of,
    job_start,
    role_name_of,
    role_of_job,
    suspension_reason,
    true_conditions,
)
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

API_VERSION = "jobset.x-k8s.io/v1alpha2"
#: Action of a JobSet's failure policy: a restart that does not count towards ``maxRestarts``.
_UNLIMITED_RESTARTS = "RestartJobSetAndIgnoreMaxRestarts"


class JobSetBackend(Backend):
    """Runs an app as a JobSet."""

    name = "jobset"
    api_version = API_VERSION
    kind = "JobSet"
    host_end = "-0-{}"  # index of the Job, index of the pod
    pod_end = "-xxxxx"
    missing = (
        "JobSet is not installed in this cluster in the version v1alpha2: install it, or use"
        " job_api=batch"
    )

    def make(self, app: AppDef, opts: KubernetesOpts) -> dict[str, Any]:
        app_id, places = self.places(app, opts)
        names = {role.name: name for role, name, _ in places}
        several = sum(role.num_replicas for role in app.roles) > 1
        jobs = []
        disrupted = []
        for role, name, place in places:
            # a pod is replaced alone if it is the only one, or if its role has the policy REPLICA
            gang = several and policy_of(role, opts) != RetryPolicy.REPLICA
            job = {
                "metadata": {
                    "labels": dict(place.labels),
                    "annotations": {ANNOTATION_ROLE_NAME: role.name},
                },
                "spec": job_spec(role, name, place, opts, together=True, gang=gang),
            }
            pod_failures = copy.deepcopy(job["spec"]["podFailurePolicy"])
            overlay_job(job, app, role, app_id, opts)
            # A rule of the user's overlay may fail the Job for an exit code. Such a failure has the
            # same reason as a disruption, but must not restart the JobSet without limit.
            if gang and job["spec"].get("podFailurePolicy") == pod_failures:
                disrupted.append(name)
            jobs.append({"name": name, "replicas": 1, "template": job})
        spec: dict[str, Any] = {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All"},
            "replicatedJobs": jobs,
        }
        if deciding := [names[role.name] for role in deciding_roles(app)]:
            spec["successPolicy"]["targetReplicatedJobs"] = deciding
        if failure_policy := jobset_retries(app, opts, names, disrupted):
            spec["failurePolicy"] = failure_policy
        if opts.ttl_seconds is not None:
            spec["ttlSecondsAfterFinished"] = opts.ttl_seconds
        jobset = {
            "apiVersion": API_VERSION,
            "kind": "JobSet",
            "metadata": object_metadata(app, app_id, object_labels(app, app_id), opts),
            "spec": spec,
        }
        if opts.queue:
            suspend_for_kueue(jobset, None, opts.queue)
        overlay_object(jobset, overlay_of(app, JOBSET_KIND, app_id), JOBSET_KIND, opts)
        return jobset

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
            limit = inner.get("backoffLimitPerIndex") or policy.get("maxRestarts")
            roles.append(
                role_of_job(
                    i,
                    role_name_of(job) or str(one["name"]),
                    inner,
                    f"{app_id}-{one['name']}-0",
                    state=state,
                    retries=int(limit or 0),
                    wants_pods=not is_terminal(state) and not spec.get("suspend"),
                )
            )
        return app_view(
            self,
            app_id,
            [jobset],
            state=state,
            message=message,
            roles=roles,
            restarts=int(status.get("restarts") or 0),
            runs_again=not is_terminal(state) and _jobset_restarts(policy, status),
            ended=end_of([jobset]),
        )

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


def jobset_retries(
    app: AppDef, opts: KubernetesOpts, names: dict[str, str], disrupted: Sequence[str]
) -> dict[str, Any]:
    """Return the field ``failurePolicy`` of a JobSet; empty if nothing restarts the JobSet.

    JobSet applies the first rule that matches a failed Job. If no rule matches, JobSet restarts at
    most ``maxRestarts`` times. Rules need JobSet 0.6 or later (KEP-262, "Configurable Failure
    Policy"; https://jobset.sigs.k8s.io/docs/tasks/failure_policy/).

    Args:
        app: The app.
        opts: The scheduler's options.
        names: Maps each role's name to the name of the role's replicated Job.
        disrupted: Names of the replicated Jobs whose pod failure policy fails them only after a
            disruption.
    """
    together = {
        role.name: role.max_retries
        for role in app.roles
        if policy_of(role, opts) != RetryPolicy.REPLICA
    }
    most = max(together.values(), default=0)
    rules: list[dict[str, Any]] = []
    if disrupted:
        rules.append(
            {
                "action": _UNLIMITED_RESTARTS,
                "onJobFailureReasons": ["PodFailurePolicy"],
                "targetReplicatedJobs": list(disrupted),
            }
        )
    never = [names[role.name] for role in app.roles if not together.get(role.name)]
    if most > 0 and never:
        rules.append({"action": "FailJobSet", "targetReplicatedJobs": never})
    if most < 1 and not rules:
        return {}
    policy: dict[str, Any] = {"maxRestarts": most}
    if rules:
        policy["rules"] = rules
    return policy


def _jobset_restarts(policy: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether the failure policy of a JobSet may restart the JobSet once more."""
    if any(r.get("action") == _UNLIMITED_RESTARTS for r in policy.get("rules") or ()):
        return True
    counted = status.get("restartsCountTowardsMax", status.get("restarts"))
    return int(counted or 0) < int(policy.get("maxRestarts") or 0)


JOBSET = JobSetBackend()
