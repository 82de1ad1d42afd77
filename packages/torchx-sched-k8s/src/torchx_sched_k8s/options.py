"""The scheduler's options, and what can be wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchx_kit.names.limits import DNS_LABEL, NameRule
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.app import RetryPolicy
from torchx_specs.options.structured import StructuredOpts

RESERVED_MILLICPU = 100
RESERVED_MEMMB = 1024

#: What ``job_api`` may be.
JOB_APIS = ("batch", "jobset", "volcano")
#: What ``image_pull_policy`` may be.
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

#: Names of secrets, config maps, service accounts, claims (RFC 1123 subdomains).
SUBDOMAIN = NameRule(253, "a-z0-9.-", first="a-z0-9", last="a-z0-9", lower=True)
_LABEL_NAME = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)?\Z", re.ASCII)
_KEY_OF_SECRET = re.compile(r"[\w.-]+\Z", re.ASCII)


@dataclass
class KubernetesOpts(StructuredOpts):
    """Options of ``kubernetes``."""

    queue: str | None = None
    """queue to wait in: Volcano's, or with job_api=batch or jobset the one of Kueue"""

    namespace: str = "default"
    """namespace of the cluster"""

    service_account: str | None = None
    """service account of the pods"""

    priority_class: str | None = None
    """priority class of the pods (of the job, with volcano)"""

    validate_spec: bool = True
    """asks the cluster whether it would take everything, before anything is created; False also
    allows fields in overlays that this version does not know"""

    reserved_millicpu: int = 100
    """thousandths of a cpu that a pod requests less than its limit, for what else a node runs"""

    reserved_memmb: int = 1024
    """MB that a pod requests less than its limit, for what else a node runs"""

    efa_device_count: int | None = None
    """vpc.amazonaws.com/efa devices of a pod; unset: as the resource says"""

    job_api: str | None = None
    """what the cluster is given: batch (Jobs, on any cluster), jobset, volcano; unset: volcano if
    there is a queue, else batch"""

    context: str | None = None
    """context of the kubeconfig, its current one unless given"""

    image_secret: str | None = None
    """secret with which images are pulled"""

    image: str | None = None
    """image of roles that name none"""

    image_pull_policy: str | None = None
    """when nodes pull images: Always, IfNotPresent or Never; unset: as the cluster does"""

    ttl_seconds: int | None = None
    """seconds after its end at which a job is removed, logs and status included; unset: never"""

    retry_policy: str | None = None
    """replaces what roles say: REPLICA, APPLICATION or ROLE; with job_api=batch, APPLICATION adds a
    small supervisor to the app, which starts all of it again, or ends it, when a role fails"""

    restarts_image: str | None = None
    """image of that supervisor, with python3 (3.7 or later) on its PATH; unset: that of the first
    role"""

    restarts_service_account: str | None = None
    """service account of that supervisor, which needs the rights to get, create, patch and delete
    jobs and to get configmaps; unset: one is made for the app, with a role and a role binding"""

    node_selector: dict[str, str] | None = None
    """labels that nodes need"""

    tolerations: list[str] | None = None
    """taints to tolerate: key, key=value, key:effect or key=value:effect; * for all"""

    affinity: str | None = None
    """the pods' affinity: JSON, or the path or URI of a file with JSON or YAML"""

    labels: dict[str, str] | None = None
    """labels for all objects"""

    annotations: dict[str, str] | None = None
    """annotations for all objects"""

    env_from: list[str] | None = None
    """variables from all keys of secret/NAME or configmap/NAME"""

    env_secrets: dict[str, str] | None = None
    """variables from one key of a secret: VARIABLE:NAME/KEY"""

    env_config_maps: dict[str, str] | None = None
    """variables from one key of a config map: VARIABLE:NAME/KEY"""

    secret_mounts: dict[str, str] | None = None
    """secrets as folders of files: NAME:/path"""

    gpu_resource: str = "nvidia.com/gpu"
    """what the cluster calls a GPU"""

    @property
    def api(self) -> str:
        """The API that the options ask for."""
        return self.job_api or ("volcano" if self.queue else "batch")


def problems_of(opts: KubernetesOpts) -> Iterable[str]:
    """Yields everything that is wrong with options, one line each."""
    for name, value, valid in (
        ("job_api", opts.job_api, JOB_APIS),
        ("image_pull_policy", opts.image_pull_policy, PULL_POLICIES),
        ("retry_policy", opts.retry_policy, [policy.value for policy in RetryPolicy]),
    ):
        if value is not None and value not in valid:
            hint = nearest(str(value), valid)
            yield f"option {name}={value}:{hint} valid values: {', '.join(valid)}"
    if opts.job_api == "volcano" and not opts.queue:
        yield "option queue: job_api=volcano needs the name of a queue (most have 'default')"
    if not DNS_LABEL.accepts(opts.namespace):
        yield f"option namespace={opts.namespace!r} is no name of a namespace"
    for name in ("reserved_millicpu", "reserved_memmb", "efa_device_count", "ttl_seconds"):
        number = getattr(opts, name)
        if number is not None and number < 0:
            yield f"option {name}={number}: it cannot be negative"
    if opts.ttl_seconds is not None and opts.api not in JOB_APIS:
        yield "option ttl_seconds: not with this API"
    for name in (
        "service_account",
        "priority_class",
        "image_secret",
        "restarts_service_account",
    ):
        value = getattr(opts, name)
        if value is not None and not SUBDOMAIN.accepts(value):
            yield f"option {name}={value!r} is no name of an object"
    if opts.restarts_image is not None and not re.fullmatch(r"[\x21-\x7e]+", opts.restarts_image):
        yield f"option restarts_image={opts.restarts_image!r} is no name of an image"
    if opts.queue is not None and not _LABEL_VALUE.match(opts.queue):
        yield f"option queue={opts.queue!r} is no name of a queue"
    for name, pairs in (("labels", opts.labels), ("node_selector", opts.node_selector)):
        for key, value in (pairs or {}).items():
            if not _LABEL_NAME.match(key) or not _LABEL_VALUE.match(value):
                yield f"option {name}: {key!r}: {value!r} is no label"
    for key in opts.annotations or ():
        if not _LABEL_NAME.match(key):
            yield f"option annotations: {key!r} is no name of an annotation"
    for make in (tolerations, env_from, env_references, secret_volumes, affinity):
        try:
            make(opts)
        except RequestError as e:
            yield from e.problems


def tolerations(opts: KubernetesOpts) -> list[dict[str, str]]:
    """Returns the tolerations that the options ask for.

    >>> tolerations(KubernetesOpts(tolerations=["gpu=true:NoSchedule", "spot"]))[1]
    {'key': 'spot', 'operator': 'Exists'}

    Raises:
        RequestError: one is not of the form that is documented
    """
    found = []
    for text in opts.tolerations or ():
        taint, colon, effect = text.partition(":")
        key, equals, value = taint.partition("=")
        if colon and effect not in _EFFECTS:
            hint = nearest(effect, _EFFECTS)
            raise RequestError(
                f"option tolerations: {text!r}:{hint} effects: {', '.join(_EFFECTS)}"
            )
        if not key or (key != "*" and not _LABEL_NAME.match(key)):
            raise RequestError(f"option tolerations: {text!r} is not of the form key=value:effect")
        toleration = {} if key == "*" else {"key": key}
        toleration["operator"] = "Equal" if equals else "Exists"
        if equals:
            toleration["value"] = value
        if colon:
            toleration["effect"] = effect
        found.append(toleration)
    return found


def env_from(opts: KubernetesOpts) -> list[dict[str, Any]]:
    """Returns ``envFrom`` of a container.

    Raises:
        RequestError: neither secret/NAME nor configmap/NAME
    """
    kinds = {"secret": "secretRef", "configmap": "configMapRef"}
    found = []
    for text in opts.env_from or ():
        kind, _, name = text.partition("/")
        if kind.lower().replace("_", "") not in kinds or not SUBDOMAIN.accepts(name):
            raise RequestError(
                f"option env_from: {text!r} is neither secret/NAME nor configmap/NAME"
            )
        found.append({kinds[kind.lower().replace("_", "")]: {"name": name}})
    return found


def env_references(opts: KubernetesOpts) -> list[dict[str, Any]]:
    """Returns variables whose values are in secrets and config maps.

    Raises:
        RequestError: one is not of the form that is documented
    """
    found = []
    for option, pairs, field in (
        ("env_secrets", opts.env_secrets, "secretKeyRef"),
        ("env_config_maps", opts.env_config_maps, "configMapKeyRef"),
    ):
        for variable, text in (pairs or {}).items():
            name, slash, key = text.partition("/")
            if not (variable and slash and SUBDOMAIN.accepts(name) and _KEY_OF_SECRET.match(key)):
                raise RequestError(f"option {option}: {variable}:{text} is not VARIABLE:NAME/KEY")
            found.append({"name": variable, "valueFrom": {field: {"name": name, "key": key}}})
    return found


def secret_volumes(opts: KubernetesOpts) -> list[tuple[str, str]]:
    """Returns the secrets to mount, and where.

    Raises:
        RequestError: one is not of the form that is documented
    """
    found = []
    for name, path in (opts.secret_mounts or {}).items():
        if not SUBDOMAIN.accepts(name) or not path.startswith("/"):
            raise RequestError(f"option secret_mounts: {name}:{path} is not NAME:/path")
        found.append((name, path))
    return found


def affinity(opts: KubernetesOpts) -> dict[str, Any] | None:
    """Returns the affinity that the options ask for.

    Raises:
        RequestError: it cannot be read, or is none
    """
    if not opts.affinity:
        return None
    text = opts.affinity.strip()
    if text.startswith("{"):
        from torchx_specs.formats.documents import parse_document

        found: Any = parse_document(text, "option affinity")
    else:
        from torchx_sched_k8s.request.overlays import document

        found = document(text)
    kinds = ("nodeAffinity", "podAffinity", "podAntiAffinity")
    if isinstance(found, Mapping) and set(found) == {"affinity"}:
        found = found["affinity"]
    if not isinstance(found, Mapping) or not found.keys() <= set(kinds):
        raise RequestError(f"option affinity: it has {', '.join(kinds)}, nothing else")
    return dict(found)
