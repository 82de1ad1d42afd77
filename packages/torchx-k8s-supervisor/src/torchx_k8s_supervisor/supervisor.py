"""The objects of an app's supervisor, and the status and the end of an app that has one.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchx_k8s_supervisor import program
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
from torchx_kit.jobs.pending_reasons import explained
from torchx_kit.times import moment
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
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_CANCELLED,
    ANNOTATION_ENDED,
    ANNOTATION_ISTIO_SIDECAR,
    BATCH,
    CORE,
    RBAC,
    annotations_of,
    main_container,
    object_labels,
    object_path,
    selector,
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
from torchx_sched_k8s.status.events import last_warning
from torchx_sched_k8s.status.pending_reasons import PENDING
from torchx_sched_k8s.status.pod_states import Pod, latest
from torchx_sched_k8s.status.views import job_state, true_conditions
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef
from torchx_specs.model.status import AppState, AttemptStatus, is_terminal
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
#: Annotation with the number of the app's roles. Only the Job of a supervisor that restarts the app
#: has it.
ANNOTATION_ROLES = "torchx.pytorch.org/roles"
#: Part of the message of an app whose supervisor does not run.
_NOT_ENDED = "if a role fails, the others run on until the app is deleted"
#: Name of the supervisor in messages.
_SUPERVISOR = "the app's supervisor"
#: How long a cancellation waits for the supervisor's pod to end, in seconds.
_STOP_SECONDS = 15.0
_STOP_PAUSE = 0.3


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
    spec: dict[str, Any] = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": _BACKOFF_LIMIT,
        "podFailurePolicy": pod_failure_policy(IGNORE_DISRUPTIONS),
        "template": {
            "metadata": {
                "labels": {**(opts.labels or {}), **labels},
                "annotations": {ANNOTATION_ISTIO_SIDECAR: "false", **(opts.annotations or {})},
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


class SupervisedApp(Supervision):
    """The state of an app's Jobs, interpreted together with the app's supervisor.

    Args:
        jobs: The app's existing Jobs, including the supervisor's Job.
        missing_jobs: Manifests of roles' Jobs that do not exist because the app is being restarted.
    """

    def __init__(
        self, jobs: Sequence[Mapping[str, Any]], missing_jobs: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(jobs, missing_jobs)
        supervisor = self.objects[0]
        self._missing_names = {str(job["metadata"]["name"]) for job in missing_jobs}
        self.restarts = max(program.number_of(job, program.RESTARTS) for job in self.objects)
        self._annotations = annotations_of(supervisor)
        self._state, self._reason = job_state(supervisor)
        if ANNOTATION_CANCELLED in self._annotations:
            when = self._annotations[ANNOTATION_CANCELLED]
            self.ended = AppState.CANCELLED, f"cancelled {when}"
        elif ANNOTATION_ENDED in self._annotations:
            self.ended = AppState.FAILED, self._annotations[ANNOTATION_ENDED]
        self._is_decided = self.ended is not None or is_terminal(self._state)
        self._restarts_app = ANNOTATION_ROLES in self._annotations
        self._has_attempts = program.REQUEUE in self._annotations
        noted = program.attempts_of(supervisor)
        steps = [None, *(step for _, _, _, step, _ in noted)]
        self._attempts = [
            AttemptStatus(
                number, moment(began), moment(ended), reason, steps[number], step, tuple(nodes)
            )
            for number, (began, ended, reason, step, nodes) in enumerate(noted)
        ]
        self.is_active = not self._is_decided and not supervisor["spec"].get("suspend")
        self.may_restart = self.is_active and self._restarts_app
        roles = program.number_of(supervisor, ANNOTATION_ROLES)
        self.missing = max(roles - len(self.role_jobs), self.missing)
        if self._is_decided:
            self.missing_state = self.ended[0] if self.ended else self._state

    def is_replaced(self, job: Mapping[str, Any]) -> bool:
        """Return whether a role's Job does not exist or will be replaced by the present restart."""
        if job["metadata"]["name"] in self._missing_names:
            return True
        earlier = program.number_of(job, program.RESTARTS) < self.restarts
        return self.may_restart and (earlier or "deletionTimestamp" in job["metadata"])

    def state_of(self, job: Mapping[str, Any]) -> tuple[AppState, str]:
        """Return the state of a role's Job, and the reason (empty if there is none)."""
        if job["metadata"]["name"] in self._missing_names:
            deleted = self.missing_state == AppState.FAILED
            return self.missing_state, "its Job was deleted" if deleted else ""
        if self.is_replaced(job):
            return AppState.PENDING, ""
        state, reason = job_state(job)
        undecided = self.may_restart and state == AppState.FAILED
        if undecided or (self.restarts and state == AppState.SUBMITTED):
            return AppState.PENDING, ""
        if self.ended and self.ended[0] == AppState.CANCELLED and not is_terminal(state):
            return self.ended[0], ""
        present = self._attempts[self.restarts :]
        is_noted = bool(present) and present[0].ended is not None
        if state == AppState.SUCCEEDED and self._has_attempts and self.may_restart and not is_noted:
            return AppState.RUNNING, ""  # until the supervisor has noted the end of the attempt
        return state, reason

    def max_restarts(self, job: Mapping[str, Any]) -> int:
        """Return how many times failures of a role's Job may restart the app."""
        return program.number_of(job, program.MAX_RESTARTS)

    @property
    def restart_reason(self) -> str:
        """Why the app is being restarted, or why its supervisor cannot act; otherwise empty."""
        if not self.is_active:
            if self.ended or self._state not in (AppState.FAILED, AppState.PENDING):
                return ""
            failed = self._state == AppState.FAILED
            how = f"failed ({self._reason})" if failed else "is suspended"
            result = "the app is not restarted" if self._restarts_app else _NOT_ENDED
            return f"{_SUPERVISOR} {how}: {result}"
        reasons = []
        existing = [job for job in self.objects if job is not self.supervisor]
        if self.missing or self._missing_names or any(map(self.is_replaced, existing)):
            reasons.append(self._annotations.get(program.REASON) or "")
        else:
            failed_job = program.first_failed(existing)
            if failed_job is not None and self._restarts_app and not self._has_attempts:
                disruptions = program.number_of(self.objects[0], program.DISRUPTIONS)
                reasons.append(program.failed_text(failed_job, self.restarts - disruptions))
        if self._annotations.get(program.TROUBLE):
            reasons.append(f"{_SUPERVISOR}: {self._annotations[program.TROUBLE]}")
        return "; ".join(filter(None, reasons))

    def message(
        self,
        cluster: Cluster,
        namespace: str,
        pods: Sequence[Pod],
        message: str,
        *,
        ended: bool,
    ) -> str:
        parts = [self.restart_reason]
        # if the supervisor has failed for good, the app is not restarted
        has_failed = self.ended is None and self._state == AppState.FAILED
        if (self.is_active or has_failed) and not ended:
            parts.append(self._problem(cluster, namespace, pods))
        parts.append(message)
        return "; ".join(dict.fromkeys(filter(None, parts)))

    def _problem(self, cluster: Cluster, namespace: str, pods: Sequence[Pod]) -> str:
        """Return why the supervisor does not run; empty if it runs or if the reason is unknown."""
        attempts = latest(pod for pod in pods if pod.role_index < 0 and not pod.role)
        status = self.objects[0].get("status") or {}
        reason = ""
        if attempts:
            pod = attempts[-1]
            if pod.state in (AppState.PENDING, AppState.FAILED) and not pod.leaving:
                reason = pod.reason
        elif status.get("startTime") and not status.get("active"):
            reason = last_warning(cluster, namespace, str(self.objects[0]["metadata"]["name"]))
        return f"{_SUPERVISOR} does not run: {explained(reason, PENDING)}" if reason else ""

    def stop(
        self, cluster: Cluster, namespace: str, app_id: str, changes: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """End the supervisor's Job and wait at most 15 seconds for its pod to end.

        A running supervisor could create Jobs while the app is being cancelled. The supervisor's
        Job is suspended. If it has a time to live, it gets a deadline instead: the cluster deletes
        only finished Jobs, and a suspended Job is not finished. The roles' Jobs need no deadline,
        because the cluster deletes them with the supervisor's Job, which owns them.
        """
        if self._is_decided:
            return self.objects[1:]
        action = f"cancel {app_id}"
        expires = "ttlSecondsAfterFinished" in self.objects[0]["spec"]
        ending: dict[str, Any] = {"activeDeadlineSeconds": 1} if expires else {"suspend": True}
        path = object_path(BATCH, namespace, "jobs")
        cluster.patch(f"{path}/{app_id}", {**changes, "spec": ending}, action)
        query = {"labelSelector": selector(instance=app_id)}
        deadline = cluster.clock() + _STOP_SECONDS
        while True:
            jobs = cluster.get(path, action, query).get("items") or []
            stopped = all(_is_stopped(job) for job in jobs if is_supervisor(job))
            if stopped or cluster.clock() > deadline:
                return [
                    job for job in jobs if not is_supervisor(job) and not program.is_deleting(job)
                ]
            cluster.sleep(_STOP_PAUSE)

    def attempts(self, state: AppState, ended: datetime | None) -> list[AttemptStatus]:
        found = list(self._attempts)
        if not self._has_attempts:
            return []
        has_begun = state == AppState.RUNNING or is_terminal(state)
        if len(found) <= self.restarts and has_begun:
            # the supervisor has not noted the start of this attempt
            step = found[-1].committed_step if found else None
            found.append(AttemptStatus(self.restarts, resume_step=step))
        if found and found[-1].ended is None and is_terminal(state):
            found[-1] = replace(found[-1], reason=state.name.lower(), ended=ended)
        return found

    def dependents(self) -> Iterable[tuple[str, str, str]]:
        """Return API path, plural and name of each object that only the supervisor uses.

        The cluster deletes these objects together with the supervisor's Job, which owns them.
        Objects that a user created with kubectl from a dry run have no owner and must be deleted by
        name.
        """
        name = str(self.objects[0]["metadata"]["name"])
        # only a supervisor that restarts the app has a config map
        kinds = [(CORE, "configmaps")] if self._restarts_app else []
        if self.objects[0]["spec"]["template"]["spec"].get("serviceAccountName") == name:
            kinds += [(RBAC, "rolebindings"), (RBAC, "roles"), (CORE, "serviceaccounts")]
        return [(api, plural, name) for api, plural in kinds]


def _is_stopped(job: Mapping[str, Any]) -> bool:
    if not true_conditions(job).keys() & {"Suspended", "Complete", "Failed"}:
        return False
    status = job.get("status") or {}
    return not status.get("active") and not status.get("terminating")


def read_missing_jobs(
    cluster: Cluster, namespace: str, supervision: SupervisedApp
) -> list[dict[str, Any]]:
    """Return the manifests of roles' Jobs that do not exist.

    The manifests are read from the supervisor's config map, by one request. The list is empty if
    the config map cannot be read.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        supervision: The app's Jobs and their supervisor.
    """
    app_id = str(supervision.objects[0]["metadata"]["name"])
    path = object_path(CORE, namespace, "configmaps", app_id)
    existing = {str(job["metadata"]["name"]) for job in supervision.objects}
    try:
        data = (cluster.get_or_none(path, f"read the roles of {app_id}") or {})["data"]
        manifests: list[dict[str, Any]] = json.loads(data[MANIFESTS])
        return [one for one in manifests if one["metadata"]["name"] not in existing]
    except (ApiError, ValueError, KeyError, TypeError):
        # it does not exist, the user may not read it, or another program replaced it
        return []
