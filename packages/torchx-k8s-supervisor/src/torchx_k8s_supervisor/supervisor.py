"""The objects of an app's supervisor.

The supervisor is a Job of one pod. The Job has the app's name and owns all other objects of the
app. The pod runs :mod:`torchx_k8s_supervisor.program` with a service account that may read
and patch the app's Jobs. If the supervisor restarts the app, the account may also delete and create
these Jobs, and a config map holds their manifests. An app with the option ``requeue`` has attempts:
its pods get variables, and the supervisor mounts the resume folder.
"""

from __future__ import annotations

import copy
import json
import math
import posixpath
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchx_k8s_supervisor import program
from torchx_k8s_supervisor.status import ANNOTATION_ROLES, SupervisedApp, read_missing_jobs
from torchx_kit.jobs.attempts import (
    ATTEMPT_VARIABLES,
    FAILURES,
    MOST_WITHOUT_PROGRESS,
    NO_PROGRESS,
    NODE_FAILURES,
    TOTAL_TIME,
    AttemptRules,
    attempt_rules,
)
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
from torchx_sched_k8s.request.kubernetes_job import (
    IGNORE_DISRUPTIONS,
    MANIFESTS,
    manifests_text,
    object_metadata,
    pod_failure_policy,
)
from torchx_sched_k8s.request.pods import escape
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef
from torchx_specs.model.templates import macros
from torchx_specs.settings import ENV_TORCHX_ATTEMPT, ENV_TORCHX_RESUME_DIR, ENV_TORCHX_STOP_GRACE

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: API version of Roles and RoleBindings.
RBAC_API_VERSION = "rbac.authorization.k8s.io/v1"
#: The largest size of a config map's data, in bytes.
LARGEST_DATA = 1024 * 1024

#: How many times a failed pod of the supervisor is replaced; evictions do not count.
_BACKOFF_LIMIT = 10
_GRACE_SECONDS = 5
#: Kubernetes sends SIGKILL this number of seconds after SIGTERM by default.
_DEFAULT_GRACE = 30
#: The sources of volumes that no other pod can write to.
_NOT_SHARED = frozenset(
    {"emptyDir", "ephemeral", "configMap", "secret", "downwardAPI", "projected", "image"}
)
#: A volume of a pod, and where its main container mounts it.
_SharedVolume = tuple[dict[str, Any], dict[str, Any]]


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
            volume, mount = shared
            pod["volumes"], pod["containers"][0]["volumeMounts"] = [volume], [mount]
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
        if cluster is not None and found.missing:
            found = SupervisedApp(jobs, read_missing_jobs(cluster, namespace, found))
        return found


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


def prepare_attempts(
    app_id: str, jobs: Sequence[dict[str, Any]], opts: KubernetesOpts
) -> tuple[dict[str, Any], _SharedVolume | None]:
    """Set the variables and the time limit of the first attempt in an app's Jobs, in place.

    Args:
        app_id: Name of the app in the cluster.
        jobs: The app's Jobs.
        opts: The scheduler's options.

    Returns:
        The rules for the supervisor's program; empty for an app without attempts. Then the volume
        with the resume folder; None if the supervisor does not mount it.

    Raises:
        RequestError: The roles do not share the volume of the resume folder.
    """
    rules = attempt_rules(opts)
    if rules is None:
        return {}, None
    folder = (opts.resume_dir or "").replace(macros.app_id, app_id)
    templates = [job["spec"]["template"] for job in jobs]
    shared = _shared_volume(templates, folder) if folder else None
    pods = sum(int(job["spec"]["completions"]) for job in jobs)
    if shared and "persistentVolumeClaim" in shared[0] and pods == 1:
        shared = None  # only one pod, or the pods of one node, may be able to mount the claim
    total = rules.max_total_seconds
    for template in templates:
        spec, container = template["spec"], main_container(template)
        grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        variables = {ENV_TORCHX_ATTEMPT: "0", ENV_TORCHX_STOP_GRACE: f"SIGTERM={grace}"}
        if folder:
            variables[ENV_TORCHX_RESUME_DIR] = escape(folder)
        others = [one for one in container.get("env") or () if one["name"] not in ATTEMPT_VARIABLES]
        own = [{"name": name, "value": value} for name, value in variables.items()]
        container["env"] = [*own, *others]
        if total is not None:
            limit = spec.get("activeDeadlineSeconds") or math.inf
            spec["activeDeadlineSeconds"] = min(limit, math.ceil(total))
    return program_rules(rules, folder if shared else ""), shared


def program_rules(rules: AttemptRules, folder: str) -> dict[str, Any]:
    """Return the rules in the form that the supervisor's program reads.

    Args:
        rules: The rules.
        folder: The resume folder; empty if the supervisor cannot read it.
    """
    total = rules.max_total_seconds
    return {
        "exit_codes": list(rules.exit_codes),
        "max_node_failures": rules.max_node_failures,
        "max_total_seconds": None if total is None else math.ceil(total),
        "folder": folder,
        "failures": FAILURES,
        "most_without_progress": MOST_WITHOUT_PROGRESS,
        "refusals": {
            "node_failures": NODE_FAILURES,
            "total_time": TOTAL_TIME,
            "no_progress": NO_PROGRESS,
        },
    }


def _shared_volume(templates: Sequence[Mapping[str, Any]], folder: str) -> _SharedVolume:
    """Return the volume that contains a folder in the pods of all roles.

    Raises:
        RequestError: There is no such volume.
    """
    found = [_volume_of(template, folder) for template in templates]
    if found[0] is None or any(one != found[0] for one in found):
        raise RequestError(
            f"option resume_dir: '{folder}' is not in a volume that all replicas share and may"
            " write to; mount one, such as a persistent volume claim, at the same path in all roles"
        )
    return found[0]


def _volume_of(template: Mapping[str, Any], folder: str) -> _SharedVolume | None:
    """Return the volume that contains a folder; None if other pods cannot write to it."""
    mounts = [
        mount
        for mount in main_container(template).get("volumeMounts") or ()
        if f"{posixpath.normpath(folder)}/".startswith(f"{mount['mountPath'].rstrip('/')}/")
    ]
    if not mounts:
        return None
    mount = max(mounts, key=lambda one: len(one["mountPath"]))
    volumes = template["spec"].get("volumes") or ()
    volume: dict[str, Any] = next((one for one in volumes if one["name"] == mount["name"]), {})
    if mount.get("readOnly") or "subPathExpr" in mount or _NOT_SHARED & volume.keys():
        return None
    name = {"name": "resume-dir"}
    return {**volume, **name}, {**mount, **name, "readOnly": True}
