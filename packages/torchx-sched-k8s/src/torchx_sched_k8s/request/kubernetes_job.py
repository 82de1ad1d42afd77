"""The request of a dry run: the Kubernetes objects to create, and the retries of Jobs."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.text.yaml_text import yaml_text
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_METADATA,
    ANNOTATION_ROLE_NAME,
    LABEL_QUEUE,
    LABEL_ROLE_INDEX,
    LABEL_UNIQUE_NAME,
    labels_of,
)
from torchx_sched_k8s.options import KubernetesOpts
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.redaction import masked

#: The largest object that etcd stores by default, in bytes.
LARGEST_OBJECT = 1536 * 1024
_NO_GANG = """\
# Each of the {pods} pods starts when a node has room for it, so some may run while others wait. To
# start all pods together, use job_api=volcano, or a queue of Kueue (queue with job_api=jobset).
"""
#: Key in the config map of a supervisor. Its value contains the manifests of the roles' Jobs.
MANIFESTS = "jobs.json"

# A rule of a pod failure policy can match a pod's condition only by its type and status
# (https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy). The condition
# DisruptionTarget marks preemption, drain, a lost node, and eviction when a node lacks memory
# (https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions). The
# condition does not mark a container that exceeded its own memory limit, or a pod that exceeded its
# own limit of ephemeral storage. These failures use up retries.

#: Recreate a pod after a preemption, an eviction or the loss of its node; this is not a retry.
IGNORE_DISRUPTIONS: dict[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
#: Fail the Job after a disruption of one of its pods, so that a JobSet or the supervisor restarts
#: all Jobs of the app.
FAIL_ON_DISRUPTION: dict[str, Any] = {**IGNORE_DISRUPTIONS, "action": "FailJob"}
#: Fail the Job when a container fails. The Job's condition keeps the exit code even after the pods
#: are deleted.
FAIL_JOB: dict[str, Any] = {
    "action": "FailJob",
    "onExitCodes": {"operator": "NotIn", "values": [0]},
}


@dataclass
class KubernetesJob:
    """The objects of an app.

    Attributes:
        images_to_push: Always empty; kept for compatibility.
        resource: The object, or a ``v1`` List of several objects.
        namespace: Namespace of the objects.
    """

    images_to_push: dict[str, tuple[str, str]] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    namespace: str = "default"

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects, without the ``v1`` List that may contain them."""
        if self.resource.get("kind") == "List":
            return list(self.resource["items"])
        return [self.resource]

    @property
    def name(self) -> str:
        """Name of the app in the cluster."""
        first = self.objects[0]
        return labels_of(first).get(LABEL_UNIQUE_NAME) or str(first["metadata"]["name"])

    def __str__(self) -> str:
        return format_request(self)

    __repr__ = __str__


def check_size(job: KubernetesJob) -> None:
    """Check that the cluster can store each object.

    Args:
        job: The objects.

    Raises:
        RequestError: An object is too large, or contains a value that JSON cannot represent.
    """
    for resource in job.objects:
        what = f"{resource.get('kind')} {resource['metadata']['name']}"
        try:
            size = len(json.dumps(resource, ensure_ascii=False).encode("utf-8"))
        except (TypeError, ValueError) as e:
            raise RequestError(f"{what}: its overlay holds a value that JSON cannot: {e}") from e
        if size > LARGEST_OBJECT:
            raise RequestError(
                f"{what} has {size / 2**20:.1f} MB, and a cluster stores at most"
                f" {LARGEST_OBJECT / 2**20:.1f} MB in one object;"
                " pass large arguments in a file, a workspace or a volume"
            )


def format_request(job: KubernetesJob) -> str:
    """Return a request as YAML for kubectl; values that look like secrets are masked.

    A comment says that nothing admits the pods of plain Jobs together.
    """
    text = "---\n".join(yaml_text(_masked(resource)) for resource in job.objects)
    jobs = [one for one in job.objects if "completions" in (one.get("spec") or {})]
    roles = [one for one in jobs if LABEL_ROLE_INDEX in labels_of(one)]
    pods = sum(int(one["spec"]["completions"]) for one in roles)
    if pods < 2 or any(LABEL_QUEUE in labels_of(one) for one in roles):
        return text
    return f"{_NO_GANG.format(pods=pods)}{text}"


def manifests_text(jobs: Iterable[Any]) -> str:
    """Return manifests as the text that a supervisor's config map holds."""
    return "[\n" + ",\n".join(json.dumps(job, sort_keys=True) for job in jobs) + "\n]\n"


def _masked(resource: Any) -> Any:
    data = resource.get("data")
    if resource.get("kind") == "ConfigMap" and isinstance(data, Mapping):
        if MANIFESTS in data:
            data = {**data, MANIFESTS: manifests_text(masked(json.loads(data[MANIFESTS])))}
        return {**resource, "data": data}
    return masked(resource)


def object_metadata(
    app: AppDef,
    name: str,
    labels: Mapping[str, str],
    opts: KubernetesOpts,
    role_name: str | None = None,
) -> dict[str, Any]:
    """Return the metadata of an object of an app.

    Args:
        app: The app.
        name: Name of the object.
        labels: Labels, in addition to the option ``labels``.
        opts: The scheduler's options.
        role_name: The role that the object belongs to; None for the whole app.
    """
    annotations = dict(opts.annotations or {})
    annotations[ANNOTATION_APP_NAME] = app.name
    if role_name is not None:
        annotations[ANNOTATION_ROLE_NAME] = role_name
    texts = {key: value for key, value in app.metadata.items() if isinstance(value, str)}
    if texts:
        annotations[ANNOTATION_METADATA] = json.dumps(texts)
    return {
        "name": name,
        "namespace": opts.namespace,
        "labels": {**(opts.labels or {}), **labels},
        "annotations": annotations,
    }


def pod_failure_policy(*rules: dict[str, Any]) -> dict[str, Any]:
    """Return a ``podFailurePolicy`` with these rules; the first matching rule applies."""
    return {"rules": copy.deepcopy(list(rules))}


def deciding_roles(app: AppDef) -> list[Role]:
    """Return the roles whose success ends the app."""
    return [role for role in app.roles if role.metadata.get(ENDS_APP_KEY)]


def policy_of(role: Role, opts: KubernetesOpts) -> RetryPolicy:
    """Return the option ``retry_policy``, or the role's own policy if the option is not set.

    With the option ``requeue``, all replicas start again together.
    """
    if opts.has_attempts:
        return RetryPolicy.APPLICATION
    return RetryPolicy(opts.retry_policy) if opts.retry_policy else role.retry_policy


def job_retries(
    role: Role, opts: KubernetesOpts, *, together: bool, gang: bool = False
) -> dict[str, Any]:
    """Return the fields of a Job's spec that control its retries.

    Args:
        role: The Job's role.
        opts: The scheduler's options.
        together: Whether a supervisor or a JobSet restarts the Job as a whole.
        gang: Whether a disruption of one pod must fail the Job, because a supervisor or a JobSet
            restarts all pods.
    """
    least = role.num_replicas if role.min_replicas is None else role.min_replicas
    elastic = 0 < least < role.num_replicas and not opts.has_attempts
    fields: dict[str, Any] = {}
    policy = policy_of(role, opts)
    # without retries too, a limit for each index lets the others run on after one has failed
    survives = elastic and role.max_retries < 1
    if survives or (role.max_retries > 0 and policy == RetryPolicy.REPLICA):
        fields["backoffLimitPerIndex"] = role.max_retries
        fields["maxFailedIndexes"] = role.num_replicas - least if elastic else 0
    else:
        fields["backoffLimit"] = 0 if together else role.max_retries
    rules = [FAIL_ON_DISRUPTION if gang else IGNORE_DISRUPTIONS]
    if together and policy == RetryPolicy.APPLICATION and opts.api == "batch" and not survives:
        rules.append(FAIL_JOB)
    fields["podFailurePolicy"] = pod_failure_policy(*rules)
    return fields
