"""The objects of an app's supervisor.

The supervisor is a Job of one pod. The Job has the app's name and owns all other objects of the
app. The pod runs :mod:`torchx_k8s_supervisor.program` with a service account that may read
and patch the app's Jobs. If the supervisor restarts the app, the account may also delete and create
these Jobs, and a config map holds their manifests.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchx_k8s_supervisor import program
from torchx_k8s_supervisor.attempts import prepare_attempts
from torchx_k8s_supervisor.status import ANNOTATION_ROLES, SupervisedApp, read_missing_jobs
from torchx_sched_k8s import options
from torchx_sched_k8s.backends.supervision import (
    LABEL_PART,
    PART_REPLICA,
    PART_SUPERVISOR,
    Supervision,
    Supervisor,
    find_owner,
    is_restarted,
    is_supervisor,
)
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_ISTIO_SIDECAR,
    annotations_of,
    main_container,
    object_labels,
)
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.kubernetes_job import MANIFESTS, manifests_text, object_metadata
from torchx_sched_k8s.request.pods import escape
from torchx_sched_k8s.request.retries import IGNORE_DISRUPTIONS, pod_failure_policy
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: API version of Roles and RoleBindings.
RBAC_API_VERSION = "rbac.authorization.k8s.io/v1"
#: The largest size of a config map's data, in bytes.
LARGEST_DATA = 1024 * 1024

#: How many times a failed pod of the supervisor is replaced; evictions do not count.
_BACKOFF_LIMIT = 10
_GRACE_SECONDS = 5


class JobSupervisor(Supervisor):
    """A supervisor in a Job of its own."""

    def supervise(
        self,
        app: AppDef,
        app_id: str,
        service: dict[str, Any],
        jobs: Sequence[dict[str, Any]],
        opts: KubernetesOpts,
    ) -> list[dict[str, Any]]:
        restarted = is_restarted(app, opts)
        service["spec"]["selector"][LABEL_PART] = PART_REPLICA
        for role, job in zip(app.roles, jobs, strict=True):
            if restarted and job["spec"].get("ttlSecondsAfterFinished") is not None:
                raise RequestError(
                    f"role '{role.name}': overlay V1Job: `spec.ttlSecondsAfterFinished` would"
                    " remove a Job that the supervisor may have to restart; set the option"
                    " ttl_seconds, which counts from the end of the app"
                )
            for part in (job, job["spec"]["template"]):
                part["metadata"]["labels"][LABEL_PART] = PART_REPLICA
            if restarted:
                limit = {program.MAX_RESTARTS: str(role.max_retries)}
                job["metadata"]["annotations"] = {**annotations_of(job), **limit}
        rules, shared = prepare_attempts(app_id, jobs, opts)
        labels = {**object_labels(app, app_id), LABEL_PART: PART_SUPERVISOR}

        def named(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
            head = {"apiVersion": api_version, "kind": kind}
            return {**head, "metadata": object_metadata(app, app_id, labels, opts), **fields}

        before = []
        if restarted:
            manifests = manifests_text(jobs)
            if len(manifests) > LARGEST_DATA:
                raise RequestError(
                    f"the Jobs of the app have {len(manifests) / 2**20:.1f} MB, and"
                    " the supervisor stores them in a config map, which holds at most 1.0 MB;"
                    " pass large arguments in a file, a workspace or a volume"
                )
            before.append(named("v1", "ConfigMap", data={MANIFESTS: manifests}, immutable=True))
        account = opts.restarts_service_account
        if account is None:
            account = app_id
            rights = _rules(app_id, jobs, restarted=restarted, reads_pods=bool(rules))
            role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": app_id}
            user = {"kind": "ServiceAccount", "name": app_id, "namespace": opts.namespace}
            before += [
                named("v1", "ServiceAccount"),
                named(RBAC_API_VERSION, "Role", rules=rights),
                named(RBAC_API_VERSION, "RoleBinding", roleRef=role_ref, subjects=[user]),
            ]
        arguments = [app_id, opts.namespace]
        if not restarted:
            arguments += [str(job["metadata"]["name"]) for job in jobs]
        spec = _job_spec(arguments, jobs[0]["spec"]["template"], account, labels, opts)
        if shared is not None:
            pod = spec["template"]["spec"]
            pod["volumes"], pod["containers"][0]["volumeMounts"] = [shared.volume], [shared.mount]
        supervisor = named("batch/v1", "Job", spec=spec)
        if restarted:
            supervisor["metadata"]["annotations"][ANNOTATION_ROLES] = str(len(jobs))
        if rules:
            supervisor["metadata"]["annotations"][program.REQUEUE] = json.dumps(rules)
        return [service, *before, *jobs, supervisor]

    def unsupervised(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        owner = find_owner(objects)
        if owner is None or ANNOTATION_ROLES in annotations_of(owner):
            return None
        kept = [copy.deepcopy(one) for one in objects if not is_supervisor(one)]
        for one in kept:
            if one.get("kind") == "Job" and "ttlSecondsAfterFinished" in owner["spec"]:
                one["spec"]["ttlSecondsAfterFinished"] = owner["spec"]["ttlSecondsAfterFinished"]
        return kept

    def read(
        self,
        jobs: Sequence[Mapping[str, Any]],
        cluster: Cluster | None = None,
        namespace: str = "",
    ) -> Supervision:
        found = SupervisedApp(jobs)
        if cluster is None:
            return found
        missing = read_missing_jobs(cluster, namespace, found)
        return SupervisedApp(jobs, missing) if missing else found


def _rules(
    app_id: str, jobs: Sequence[Mapping[str, Any]], *, restarted: bool, reads_pods: bool
) -> list[dict[str, Any]]:
    """Return the rights of the supervisor's account, limited to the app's objects by name.

    The rights to create Jobs and for pods are the exceptions: RBAC cannot limit them by name.

    Args:
        app_id: Name of the app in the cluster.
        jobs: The roles' Jobs.
        restarted: Whether the supervisor restarts the app; otherwise it only ends roles.
        reads_pods: Whether the app has attempts, which the supervisor reads from the pods.
    """
    names = [str(job["metadata"]["name"]) for job in jobs]
    batch = {"apiGroups": ["batch"], "resources": ["jobs"]}
    if not restarted:
        return [{**batch, "resourceNames": [app_id, *names], "verbs": ["get", "patch"]}]
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]}
    return [
        {**batch, "resourceNames": [app_id], "verbs": ["get", "patch"]},
        {**batch, "resourceNames": names, "verbs": ["get", "patch", "delete"]},
        {**batch, "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [app_id],
            "verbs": ["get"],
        },
        *([pods] if reads_pods else []),
    ]


def _job_spec(
    arguments: Sequence[str],
    template: Mapping[str, Any],
    account: str,
    labels: Mapping[str, str],
    opts: KubernetesOpts,
) -> dict[str, Any]:
    source = files("torchx_k8s_supervisor").joinpath("program.py").read_text("utf-8")
    # overlays were already applied to this pod
    first_pod = template["spec"]
    main = main_container(template)
    container: dict[str, Any] = {
        "name": PART_SUPERVISOR,
        "image": opts.restarts_image or main.get("image") or "",
        "command": ["python3", "-c", escape(source), *arguments],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            # a quota of the namespace may require limits
            "limits": {"cpu": "500m", "memory": "256Mi"},
        },
        # after a failure, the last lines of the log become the message of the pod's status
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            **_user_of(main.get("securityContext")),
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if opts.image_pull_policy:
        container["imagePullPolicy"] = opts.image_pull_policy
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [container],
    }
    optional = {
        "imagePullSecrets": first_pod.get("imagePullSecrets"),
        "securityContext": _user_of(first_pod.get("securityContext")),
        # the supervisor needs no devices, so it ignores the instance type of a role's resource
        "nodeSelector": opts.node_selector,
        "tolerations": options.tolerations(opts),
        "priorityClassName": opts.priority_class,
    }
    pod.update({field: value for field, value in optional.items() if value})
    annotations = {ANNOTATION_ISTIO_SIDECAR: "false", **(opts.annotations or {})}
    spec: dict[str, Any] = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": _BACKOFF_LIMIT,
        "podFailurePolicy": pod_failure_policy(IGNORE_DISRUPTIONS),
        "template": {
            "metadata": {
                "labels": {**(opts.labels or {}), **labels},
                "annotations": annotations,
            },
            "spec": pod,
        },
    }
    if opts.ttl_seconds is not None:
        # the supervisor's Job ends with the app and owns all other objects, so they are deleted too
        spec["ttlSecondsAfterFinished"] = opts.ttl_seconds
    return spec


def _user_of(context: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a security context that set user and group."""
    fields = ("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup")
    return {field: context[field] for field in fields if context and field in context}
