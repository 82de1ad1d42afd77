"""Make the pods of a role, as plain data, and read the environment of a pod's container."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_kit.errors import MountTypeError
from torchx_sched_k8s import options
from torchx_sched_k8s.cluster.labels import ANNOTATION_ISTIO_SIDECAR, LABEL_INSTANCE_TYPE
from torchx_sched_k8s.cluster.names import port_names
from torchx_sched_k8s.options import KubernetesOpts
from torchx_specs.model.app import Role
from torchx_specs.model.constants import ENV_RANK0_HOST, MISSING, NONE
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource
from torchx_specs.model.secrets import SecretRef, is_secret_reference, parse_secret
from torchx_specs.model.templates import macros

#: The environment variable that holds the replica's image.
ENV_IMAGE = "TORCHX_IMAGE"
#: The environment variable that holds the replica's index, if all replicas of a role share one
#: template.
ENV_REPLICA_ID = "TORCHX_REPLICA_ID"
_ENV_JOB_ID = "TORCHX_JOB_ID"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point

#: Prefix in the value of an environment variable that gets the value of a pod's field. The rest of
#: the value is the field's path.
PLACEHOLDER_FIELD_PATH = "[FIELD_PATH]"
EFA_DEVICE = "vpc.amazonaws.com/efa"

#: A reference to the variable :data:`ENV_REPLICA_ID`, which nodes expand.
REPLICA_REFERENCE = f"$({ENV_REPLICA_ID})"
#: Stands for the replica's index in a role until :func:`escape` replaces it by a reference to the
#: variable. A user's text cannot contain this mark.
REPLICA_MARK = "\0replica\0"

_NO_IMAGE = frozenset({"", NONE, MISSING})
# Nodes replace $(NAME) by a variable, and $$ by $. The mark becomes $(NAME), so a dollar sign
# before the mark must be escaped too.
_ACTIVE = re.compile(r"\$\$+|\$(?=[(\0])")


@dataclass(frozen=True)
class Place:
    """The names, labels and index of a pod, or of a template of pods.

    Attributes:
        app_id: Name of the app in the cluster.
        namespace: Namespace of the pod.
        labels: Labels of the pod.
        annotations: Annotations of the pod.
        rank0: Host name of the first replica of the first role.
        replica: Index of the replica; None for a template of all replicas of a role.
        index_path: Path of the pod's field that holds the replica's index; used if ``replica`` is
            None.
    """

    app_id: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    rank0: str
    replica: int | None = None
    index_path: str = ""

    def values(self) -> macros.Values:
        """Return the values to substitute for macros in a role."""
        replica = REPLICA_MARK if self.replica is None else str(self.replica)
        return macros.Values("", self.app_id, replica, ENV_RANK0_HOST)


def make_pod(
    role: Role, container: str, place: Place, opts: KubernetesOpts, *, plain: bool = False
) -> dict[str, Any]:
    """Return metadata and spec of a pod.

    Args:
        role: The role. Its macros were already substituted by the values of ``place``.
        container: Name of the container.
        place: Names, labels and index of the pod.
        opts: The scheduler's options.
        plain: Whether to make the pod in the form that older releases used for Volcano and MCAD:
            shared memory has no size limit, the reserve may reduce requests to 0, and empty fields
            are included.
    """
    spec = _pod_spec(role, opts, plain)
    main = spec["containers"][0]
    main["name"] = container
    main["command"] = [escape(role.entrypoint), *map(escape, role.args)]
    main["env"] = _env(role, place, opts)
    metadata = {
        "labels": {**(opts.labels or {}), **place.labels},
        "annotations": {
            ANNOTATION_ISTIO_SIDECAR: "false",
            **place.annotations,
            **(opts.annotations or {}),
        },
    }
    return {"metadata": metadata, "spec": spec}


def image_of(role: Role, opts: KubernetesOpts) -> str:
    """Return the image of a role, or the option ``image`` if the role has no image."""
    return opts.image if role.image in _NO_IMAGE and opts.image else str(role.image)


def _pod_spec(role: Role, opts: KubernetesOpts, plain: bool) -> dict[str, Any]:
    volumes, mounts, privileged = _volumes(role, opts, plain)
    main: dict[str, Any] = {"name": "", "image": image_of(role, opts), "command": [], "env": []}
    ports = [
        {"name": name, "containerPort": int(role.port_map[given])}
        for given, name in port_names(role.port_map).items()
    ]
    limits, requests = resource_lists(role.resource, opts, plain)
    if ports or plain:
        main["ports"] = ports
    if limits or plain:
        main["resources"] = {"limits": limits, "requests": requests}
    of_pod, of_container = _security_contexts(opts)
    if privileged:
        of_container["privileged"] = True
    if of_container or plain:
        main["securityContext"] = of_container
    main["volumeMounts"] = mounts
    if from_ := options.env_from(opts):
        main["envFrom"] = from_
    if opts.image_pull_policy:
        main["imagePullPolicy"] = opts.image_pull_policy
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [main], "volumes": volumes}
    nodes = {**_instance_selector(role.resource), **(opts.node_selector or {})}
    if nodes or plain:
        spec["nodeSelector"] = nodes
    optional = {
        "activeDeadlineSeconds": options.time_limit(opts),
        "serviceAccountName": opts.service_account,
        "imagePullSecrets": [{"name": name} for name in options.pull_secrets(opts)],
        "securityContext": of_pod,
        "tolerations": options.tolerations(opts),
        "affinity": options.affinity(opts),
    }
    spec.update({field: value for field, value in optional.items() if value})
    return spec


def escape(text: str) -> str:
    """Escape ``$`` so that a container gets a text unchanged; replace each REPLICA_MARK.

    >>> escape("$(PATH) $HOME $$"), escape("a$" + REPLICA_MARK)
    ('$$(PATH) $HOME $$$$', 'a$$$(TORCHX_REPLICA_ID)')
    """
    text = str(text)
    if "$" in text:
        text = _ACTIVE.sub(lambda found: found[0] * 2, text)
    return text.replace(REPLICA_MARK, REPLICA_REFERENCE)


def unescape(text: str) -> str:
    """Replace ``$$`` by ``$`` as a node does; variables are not substituted."""
    return re.sub(r"\$\$", "$", text)


def index_variable(path: str) -> dict[str, Any]:
    """Return an environment variable with the replica's index, from the pod's field ``path``."""
    return {"name": ENV_REPLICA_ID, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secret_variable(name: str, value: str) -> dict[str, Any] | None:
    """Convert an environment variable whose value is a secret reference to a ``secretKeyRef``.

    Return None if the value is not a secret reference. If the reference contains no key of the
    Secret, the key is the variable's name.

    Raises:
        RequestError: The value is an invalid reference.
    """
    reference = parse_secret(value)
    if reference is None:
        return None
    source = {"name": reference.name, "key": reference.key or name}
    return {"name": name, "valueFrom": {"secretKeyRef": source}}


def described_env(variables: list[dict[str, Any]]) -> dict[str, str]:
    """Return the environment of a container as a dict.

    A ``secretKeyRef`` becomes the text of a :class:`~torchx_specs.SecretRef`. Variables that refer
    to other objects, such as config maps, are left out.

    Args:
        variables: The container's ``env``.
    """
    env = {}
    for one in variables:
        name, source = str(one["name"]), (one.get("valueFrom") or {}).get("secretKeyRef")
        if "value" in one:
            env[name] = unescape(str(one["value"]))
        elif source:
            key = source.get("key")
            reference = str(SecretRef(str(source.get("name")), None if key == name else str(key)))
            # an option or overlay may name a Secret that cannot be written as a reference
            if is_secret_reference(reference):
                env[name] = reference
    return env


def _env(role: Role, place: Place, opts: KubernetesOpts) -> list[dict[str, Any]]:
    reserved = {ENV_RANK0_HOST: place.rank0, ENV_IMAGE: image_of(role, opts)}
    env = dict(role.env)
    found: list[dict[str, Any]] = []
    if place.replica is None:
        # a value can refer only to earlier variables, so this variable must be the first
        found.append(index_variable(place.index_path))
        env.pop(ENV_REPLICA_ID, None)
    for name, value in env.items():
        value = str(value)
        if reserved.get(name):
            continue
        if value.startswith(PLACEHOLDER_FIELD_PATH):
            path = value.removeprefix(PLACEHOLDER_FIELD_PATH)
            found.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
            continue
        if name == _ENV_JOB_ID and value.endswith(f"/{place.app_id}"):
            # app ids of this scheduler begin with the namespace, which the macro's value lacks
            value = f"{value[: -len(place.app_id)]}{place.namespace}:{place.app_id}"
        found.append(secret_variable(name, value) or {"name": name, "value": escape(value)})
    found += [one for one in options.env_references(opts) if one["name"] not in env]
    found += [{"name": name, "value": escape(value)} for name, value in reserved.items() if value]
    return found


def resource_lists(
    resource: Resource, opts: KubernetesOpts, plain: bool = False
) -> tuple[dict[str, str], dict[str, str]]:
    """Return limits and requests of a container.

    The requests of CPU and memory are lower than the limits by the options ``reserved_millicpu``
    and ``reserved_memmb``. So a role that needs a whole node leaves room for the node's system
    pods.

    Args:
        resource: The role's resource.
        opts: The scheduler's options.
        plain: Whether a request may be less than half of its limit, as in older releases.
    """
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}

    def less(limit: int, reserve: int) -> int:
        return max(limit - reserve, 0 if plain else limit - limit // 2)

    if resource.cpu > 0:
        milli = round(resource.cpu * 1000)
        limits["cpu"] = f"{milli}m"
        requests["cpu"] = f"{less(milli, opts.reserved_millicpu)}m"
    if resource.memMB > 0:
        limits["memory"] = f"{int(resource.memMB)}M"
        requests["memory"] = f"{less(int(resource.memMB), opts.reserved_memmb)}M"
    if resource.gpu > 0:
        limits[opts.gpu_resource] = requests[opts.gpu_resource] = str(resource.gpu)
    for device, count in resource.devices.items():
        limits[device] = str(count)
    if opts.efa_device_count is not None:
        limits.pop(EFA_DEVICE, None)
        if opts.efa_device_count:
            limits[EFA_DEVICE] = str(opts.efa_device_count)
    return limits, requests


def _instance_selector(resource: Resource) -> dict[str, str]:
    instance = resource.capabilities.get(LABEL_INSTANCE_TYPE)
    return {LABEL_INSTANCE_TYPE: str(instance)} if instance else {}


def _volumes(
    role: Role, opts: KubernetesOpts, plain: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], bool]:
    """Return a pod's volumes, their mounts, and whether the container must be privileged."""
    memory: dict[str, Any] = {"medium": "Memory"}
    if role.resource.memMB > 0 and not plain:
        # the files count as the container's memory, so a limit of the same size forbids nothing
        memory["sizeLimit"] = f"{int(role.resource.memMB)}M"
    volumes: list[dict[str, Any]] = [{"name": "dshm", "emptyDir": memory}]
    mounts: list[dict[str, Any]] = [{"name": "dshm", "mountPath": SHARED_MEMORY}]
    privileged = False
    for i, mount in enumerate(role.mounts):
        name = f"mount-{i}"
        if isinstance(mount, VolumeMount):
            source: dict[str, Any] = {"persistentVolumeClaim": {"claimName": mount.src}}
        elif isinstance(mount, (BindMount, DeviceMount)):
            source = {"hostPath": {"path": mount.src_path}}
        else:
            raise MountTypeError(
                f"role '{role.name}': mounts[{i}] is {mount!r:.99};"
                " it must be a BindMount, VolumeMount or DeviceMount"
            )
        if isinstance(mount, DeviceMount):
            read_only = not set(mount.permissions) & {"w", "m"}
            privileged = True
        else:
            read_only = mount.read_only
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": mount.dst_path, "readOnly": read_only})
    for i, (source, path) in enumerate(options.volumes(opts)):
        volumes.append({"name": f"volume-{i}", **source})
        mounts.append({"name": f"volume-{i}", "mountPath": path})
    return volumes, mounts, privileged


def _security_contexts(opts: KubernetesOpts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the security contexts of a pod and of its container.

    With ``pod_security=restricted`` the contexts have the fields that the restricted Pod Security
    Standard requires (https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted).
    """
    of_pod: dict[str, Any] = {}
    of_container: dict[str, Any] = {}
    if opts.pod_security == "restricted":
        of_pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        of_container = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if opts.run_as_user is not None:
        of_pod["runAsUser"] = opts.run_as_user
    return of_pod, of_container
