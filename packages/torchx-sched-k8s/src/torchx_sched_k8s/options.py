"""The options of ``kubernetes``, and their validation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchx_kit.jobs.attempts import AttemptOpts, attempt_problems
from torchx_kit.names.limits import DNS_LABEL, NameRule
from torchx_kit.times import limit_option
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.app import RetryPolicy

RESERVED_MILLICPU = 100
RESERVED_MEMMB = 1024

#: Maps the kinds of volumes that the option ``volumes`` accepts to the forms of their values.
VOLUME_KINDS = {
    "emptyDir": "emptyDir:/path or emptyDir:/path:SIZE",
    "configMap": "configMap/NAME:/path",
    "secret": "secret/NAME:/path",
    "ephemeral": "ephemeral:/path:SIZE or ephemeral/STORAGE_CLASS:/path:SIZE",
    "csi": "csi/DRIVER:/path",
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

#: Rule for names of secrets, config maps, service accounts and persistent volume claims (RFC 1123
#: subdomains).
SUBDOMAIN = NameRule(253, "a-z0-9.-", first="a-z0-9", last="a-z0-9", lower=True)
#: Hint for error messages about names that do not match SUBDOMAIN.
_NAME_RULE = "use lower-case letters, digits, '-' and '.', at most 253 characters"
#: Hint for error messages about names of namespaces.
_DNS_RULE = "use lower-case letters, digits and '-', at most 63 characters"
_LABEL_RULE = "use letters, digits, '-', '_' and '.', at most 63 characters"
_LABEL_NAME = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)?\Z", re.ASCII)
_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[kMGTPE]|[KMGTPE]i)?\Z")
_SECRET_KEY = re.compile(r"[\w.-]+\Z", re.ASCII)


@dataclass
class KubernetesOpts(AttemptOpts):
    """Options of ``kubernetes``."""

    queue: str | None = None
    """queue of the job: Volcano's queue; with job_api=batch or jobset, Kueue's local queue"""

    namespace: str = ""
    """namespace of the job; unset: the namespace of the kubeconfig's context, or default"""

    service_account: str | None = None
    """service account of the pods"""

    priority_class: str | None = None
    """priority class of the pods; with volcano, of the job"""

    validate_spec: bool | None = None
    """unset: check all objects by a dry run on the cluster before the first is created, and shorten
    long names; True: check, and refuse long names; False: check nothing, shorten long names, and
    allow unknown fields in overlays"""

    reserved_millicpu: int = 100
    """CPU (in thousandths) by which a pod's request is lower than its limit, for system pods"""

    reserved_memmb: int = 1024
    """memory (in MB) by which a pod's request is lower than its limit, for system pods"""

    efa_device_count: int | None = None
    """number of vpc.amazonaws.com/efa devices of a pod; unset: the number in the role's resource"""

    job_api: str | None = None
    """API of the objects: batch (plain Jobs, on any cluster), jobset or volcano; unset: volcano if
    a queue is set, otherwise batch"""

    context: str | None = None
    """context of the kubeconfig; unset: the current context"""

    retry_seconds: int | None = None
    """seconds to retry an API server that is busy or does not answer; unset: 120 (or the variable
    TORCHX_KUBERNETES_RETRY_SECONDS, also for commands without options)"""

    image_secret: str | None = None
    """secret with the credentials to pull images"""

    image: str | None = None
    """image of roles without an image"""

    image_pull_policy: str | None = None
    """when nodes pull images: Always, IfNotPresent or Never; unset: the cluster's default"""

    ttl_seconds: int | None = None
    """seconds after its end until a job is deleted, with its logs and status; unset: never"""

    time: str | None = None
    """end each pod, as a failure, after this time with a unit: 90s, 30m, 2h or 1-12:00 (days, hours
    and minutes); it begins when a node accepts the pod, so that the pull of the image counts, and
    a retry has the same time again; unset: no limit"""

    retry_policy: str | None = None
    """retry policy of all roles: REPLICA, APPLICATION or ROLE; with job_api=batch, APPLICATION adds
    a supervisor pod to the app, which restarts or ends the whole app when a role fails"""

    fail_together: bool = True
    """with job_api=batch and several roles, add a supervisor pod to the app, which ends all roles
    when one fails for good; False: the other roles run on"""

    restarts_image: str | None = None
    """image of the supervisor, with python3 (3.7 or later) on its PATH; unset: the first role's
    image"""

    restarts_service_account: str | None = None
    """service account of the supervisor, with the rights to get, create, patch and delete jobs and
    to get configmaps (only to get and patch jobs if the supervisor restarts nothing); unset: a new
    one for the app, with a role and a role binding"""

    array: bool = True
    """submit apps of one replica that differ only in arguments and variables, such as the elements
    of a sweep, as indexes of one Job; their image needs sh; False: a Job for each app"""

    node_selector: dict[str, str] | None = None
    """labels of the nodes that may run the pods"""

    tolerations: list[str] | None = None
    """taints that the pods tolerate: key, key=value, key:effect or key=value:effect; * for all"""

    affinity: str | None = None
    """affinity of the pods: JSON, or the path or URI of a file of JSON or YAML"""

    labels: dict[str, str] | None = None
    """labels of all objects"""

    annotations: dict[str, str] | None = None
    """annotations of all objects"""

    env_from: list[str] | None = None
    """environment variables from all keys of secret/NAME or configmap/NAME"""

    env_secrets: dict[str, str] | None = None
    """environment variables from one key of a secret: VARIABLE:NAME/KEY"""

    env_config_maps: dict[str, str] | None = None
    """environment variables from one key of a config map: VARIABLE:NAME/KEY"""

    volumes: list[str] | None = None
    """volumes of the pods: emptyDir:/path, emptyDir:/path:SIZE, configMap/NAME:/path,
    secret/NAME:/path, ephemeral:/path:SIZE, ephemeral/STORAGE_CLASS:/path:SIZE or csi/DRIVER:/path;
    SIZE such as 100Gi"""

    image_secrets: list[str] | None = None
    """secrets with the credentials to pull images, in addition to image_secret"""

    pod_security: str | None = None
    """Pod Security Standard that the pods meet: restricted (no root user, no privileges, no mounts
    of the node's files); unset: no security context"""

    run_as_user: int | None = None
    """id of the user that runs the containers' processes; unset: the image's user"""

    gpu_resource: str = "nvidia.com/gpu"
    """resource name of a GPU in the cluster"""

    @property
    def has_attempts(self) -> bool:
        """Whether the app starts again after a preemption: the option requeue or resume_dir."""
        return self.requeue or bool(self.resume_dir)

    @property
    def api(self) -> str:
        """The API of the objects, with the default resolved."""
        return self.job_api or ("volcano" if self.queue else "batch")


def problems_of(opts: KubernetesOpts) -> Iterable[str]:
    """Yield an error text for each invalid option."""
    for name, value, valid in (
        ("job_api", opts.job_api, ["batch", "jobset", "volcano"]),
        ("image_pull_policy", opts.image_pull_policy, ["Always", "IfNotPresent", "Never"]),
        ("pod_security", opts.pod_security, ["restricted"]),
        ("retry_policy", opts.retry_policy, [policy.value for policy in RetryPolicy]),
    ):
        if value is not None and value not in valid:
            hint = nearest(str(value), valid)
            yield f"option {name}={value}:{hint} valid values: {', '.join(valid)}"
    yield from attempt_problems(opts)
    if opts.has_attempts and opts.api != "batch":
        yield (
            f"options requeue and resume_dir: apps of {opts.api} do not start again after a"
            " preemption; use job_api=batch"
        )
    if opts.resume_dir and not opts.resume_dir.startswith("/"):
        yield (
            f"option resume_dir={opts.resume_dir!r}: use an absolute path in the containers, on a"
            " volume that all replicas mount"
        )
    if opts.job_api == "volcano" and not opts.queue:
        yield "option queue is not set: job_api=volcano needs the name of a queue (often 'default')"
    names = ("service_account", "priority_class", "image_secret", "restarts_service_account")
    yield from problems_of_names(opts, names)
    for name in opts.image_secrets or ():
        if not SUBDOMAIN.accepts(name):
            yield f"option image_secrets: {name!r} is not a valid name; {_NAME_RULE}"
    if opts.pod_security is not None and opts.run_as_user == 0:
        yield "option run_as_user=0: pod_security=restricted forbids root; use 1 or more"
    for name in (
        "reserved_millicpu",
        "reserved_memmb",
        "efa_device_count",
        "ttl_seconds",
        "retry_seconds",
        "run_as_user",
    ):
        number = getattr(opts, name)
        if number is not None and number < 0:
            yield f"option {name}={number} must be 0 or more"
    if opts.restarts_image is not None and not re.fullmatch(r"[\x21-\x7e]+", opts.restarts_image):
        image = opts.restarts_image
        yield f"option restarts_image={image!r} contains a space or a control character"
    if opts.queue is not None and not _LABEL_VALUE.match(opts.queue):
        yield f"option queue={opts.queue!r} is not a valid name; {_LABEL_RULE}"
    for name, pairs in (("labels", opts.labels), ("node_selector", opts.node_selector)):
        for key, value in (pairs or {}).items():
            if not _LABEL_NAME.match(key) or not _LABEL_VALUE.match(value):
                yield f"option {name}: {key!r}: {value!r} is not a valid label; {_LABEL_RULE}"
    for key in opts.annotations or ():
        if not _LABEL_NAME.match(key):
            yield f"option annotations: {key!r} is not a valid key; {_LABEL_RULE}"
    for make in (
        time_limit,
        tolerations,
        env_from,
        env_references,
        volumes,
        affinity,
    ):
        try:
            make(opts)
        except RequestError as e:
            yield from e.problems


def problems_of_names(opts: Mapping[str, Any], names: Iterable[str]) -> Iterable[str]:
    """Yield an error text if the option ``namespace`` or one of ``names`` is not a valid name."""
    namespace = opts["namespace"]
    if namespace and not DNS_LABEL.accepts(namespace):
        yield f"option namespace={namespace!r} is not a valid name; {_DNS_RULE}"
    for name in names:
        if opts[name] is not None and not SUBDOMAIN.accepts(opts[name]):
            yield f"option {name}={opts[name]!r} is not a valid name; {_NAME_RULE}"


def time_limit(opts: KubernetesOpts) -> int | None:
    """Return how long a pod may run, in seconds; None without a limit.

    Raises:
        RequestError: The value is not a time with a unit.
    """
    return math.ceil(limit_option("time", opts.time)) if opts.time else None


def _unknown(option: str, text: str, part: str, value: str, valid: Iterable[str]) -> str:
    """Return the error text for a part of an option's value that is not one of the valid words."""
    hint = nearest(value, valid)
    return (
        f"option {option}: {text!r} has an unknown {part} {value!r};{hint}"
        f" {part}s: {', '.join(valid)}"
    )


def tolerations(opts: KubernetesOpts) -> list[dict[str, str]]:
    """Return the tolerations of the pods.

    >>> tolerations(KubernetesOpts(tolerations=["gpu=true:NoSchedule", "spot"]))[1]
    {'key': 'spot', 'operator': 'Exists'}

    Raises:
        RequestError: A value does not have the documented form.
    """
    found = []
    for text in opts.tolerations or ():
        taint, colon, effect = text.partition(":")
        key, equals, value = taint.partition("=")
        if colon and effect not in _EFFECTS:
            raise RequestError(_unknown("tolerations", text, "effect", effect, _EFFECTS))
        if key != "*" and not _LABEL_NAME.match(key):
            raise RequestError(f"option tolerations: {text!r} must have the form key=value:effect")
        fields = {
            "key": key if key != "*" else "",
            "operator": "Equal" if equals else "Exists",
            "value": value,
            "effect": effect,
        }
        found.append({name: field for name, field in fields.items() if field})
    return found


def env_from(opts: KubernetesOpts) -> list[dict[str, Any]]:
    """Return the field ``envFrom`` of a container.

    Raises:
        RequestError: A value is neither secret/NAME nor configmap/NAME.
    """
    kinds = {"secret": "secretRef", "configmap": "configMapRef"}
    found = []
    for text in opts.env_from or ():
        kind, _, name = text.partition("/")
        if kind.lower().replace("_", "") not in kinds or not SUBDOMAIN.accepts(name):
            raise RequestError(f"option env_from: {text!r} must be secret/NAME or configmap/NAME")
        found.append({kinds[kind.lower().replace("_", "")]: {"name": name}})
    return found


def env_references(opts: KubernetesOpts) -> list[dict[str, Any]]:
    """Return the variables of ``env_secrets`` and ``env_config_maps``, as items of ``env``.

    Raises:
        RequestError: A value does not have the documented form.
    """
    found = []
    for option, pairs, field in (
        ("env_secrets", opts.env_secrets, "secretKeyRef"),
        ("env_config_maps", opts.env_config_maps, "configMapKeyRef"),
    ):
        for variable, text in (pairs or {}).items():
            name, slash, key = text.partition("/")
            if not (variable and slash and SUBDOMAIN.accepts(name) and _SECRET_KEY.match(key)):
                raise RequestError(f"option {option}: {variable}:{text} must be VARIABLE:NAME/KEY")
            found.append({"name": variable, "valueFrom": {field: {"name": name, "key": key}}})
    return found


def pull_secrets(opts: KubernetesOpts) -> list[str]:
    """Return the names of ``image_secret`` and ``image_secrets``, each once."""
    names = [*([opts.image_secret] if opts.image_secret else []), *(opts.image_secrets or ())]
    return list(dict.fromkeys(names))


def volumes(opts: KubernetesOpts) -> list[tuple[dict[str, Any], str]]:
    """Return the source of each volume of the option ``volumes``, and the path to mount it at.

    >>> volumes(KubernetesOpts(volumes=["emptyDir:/scratch:10Gi"]))
    [({'emptyDir': {'sizeLimit': '10Gi'}}, '/scratch')]

    Raises:
        RequestError: A value does not have the documented form.
    """
    found = []
    for text in opts.volumes or ():
        what, _, rest = text.partition(":")
        path, colon, size = rest.partition(":")
        kind, _, name = what.partition("/")
        form = VOLUME_KINDS.get(kind)
        if form is None:
            problem = _unknown("volumes", text, "kind", kind, VOLUME_KINDS)
            raise RequestError(f"{problem}; use VolumeMount for a claim that exists")
        named = bool(name) if kind != "ephemeral" or name else None
        wrong = (
            not path.startswith("/")
            or (named is not None and named != (kind != "emptyDir"))
            or (named and not SUBDOMAIN.accepts(name))
            or (bool(colon) and kind not in ("emptyDir", "ephemeral"))
            or ((bool(colon) or kind == "ephemeral") and not _QUANTITY.match(size))
        )
        if wrong:
            raise RequestError(f"option volumes: {text!r} must have the form {form}")
        sources: dict[str, dict[str, Any]] = {
            "emptyDir": {"sizeLimit": size} if size else {},
            "configMap": {"name": name},
            "secret": {"secretName": name},
            "ephemeral": {"volumeClaimTemplate": {"spec": _claim(name, size)}},
            "csi": {"driver": name},
        }
        found.append(({kind: sources[kind]}, path))
    return found


def _claim(storage_class: str, size: str) -> dict[str, Any]:
    """Return the spec of a persistent volume claim for one pod.

    Args:
        storage_class: Storage class of the volume; empty for the cluster's default.
        size: Size of the volume, as a Kubernetes quantity.
    """
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    return {**claim, "storageClassName": storage_class} if storage_class else claim


def affinity(opts: KubernetesOpts) -> dict[str, Any] | None:
    """Return the affinity of the pods; None if the option is not set.

    Raises:
        RequestError: The value cannot be read, or is not an affinity.
    """
    if not opts.affinity:
        return None
    text = opts.affinity.strip()
    if text.startswith("{"):
        from torchx_specs.formats.documents import parse_document

        found: Any = parse_document(text, "option affinity")
    else:
        from torchx_sched_k8s.request.overlays import read_document

        found = read_document(text)
    kinds = ("nodeAffinity", "podAffinity", "podAntiAffinity")
    if isinstance(found, Mapping) and set(found) == {"affinity"}:
        found = found["affinity"]
    if not isinstance(found, Mapping) or not found.keys() <= set(kinds):
        raise RequestError(f"option affinity: valid keys: {', '.join(kinds)}")
    return dict(found)
