"""Check an app and its options, without a request to a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_sched_k8s.options import SUBDOMAIN, KubernetesOpts, problems_of
from torchx_sched_k8s.request.pods import SHARED_MEMORY
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.schedulers.request_checks import RequestRules

_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_VALID_PERMISSIONS = frozenset("rwm")
# An empty image is valid, because an overlay may set one.
RULES = RequestRules(needs_resource=False, needs_entrypoint=True, needs_image=False)


def request_problems(app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
    """Yield the problems of an app and the options, which every cluster rejects.

    Args:
        app: The app.
        opts: The scheduler's options.
    """
    yield from problems_of(opts)
    yield from problems_of_roles(app, opts.image)
    for role in app.roles:
        for i, mount in enumerate(role.mounts):
            if opts.pod_security is not None and isinstance(mount, (BindMount, DeviceMount)):
                yield (
                    f"role '{role.name}': mounts[{i}] mounts {mount.src_path!r} of the node, which"
                    f" pod_security={opts.pod_security} forbids; use a VolumeMount, or the option"
                    " volumes"
                )


def problems_of_roles(app: AppDef, image: str | None = None) -> Iterable[str]:
    """Yield an error text for each property of a role that is invalid in Kubernetes.

    Args:
        app: The app.
        image: Image for roles without an image.
    """
    for role in app.roles:
        yield from (f"role '{role.name}': {problem}" for problem in _problems_of_role(role, image))


def _problems_of_role(role: Role, image: str | None) -> Iterable[str]:
    if role.image in (NONE, MISSING) and not image:
        yield "no image; set Role.image, or the option image"
    for key in role.env:
        if key and "=" not in key and not _ENV_NAME.match(key):
            yield (
                f"env has {key!r}, which is not a valid variable name in Kubernetes"
                " (letters, digits, '-', '_', '.'; not a digit first)"
            )
    for name, port in role.port_map.items():
        if not 0 < port < 65536:
            yield f"port_map['{name}'] is {port}; a port is 1 to 65535"
    yield from _problems_of_mounts(role)


def _problems_of_mounts(role: Role) -> Iterable[str]:
    paths = {SHARED_MEMORY}
    for i, mount in enumerate(role.mounts):
        if not isinstance(mount, (BindMount, VolumeMount, DeviceMount)):
            continue  # make_pod raises MountTypeError for it
        where = f"mounts[{i}]"
        if not mount.dst_path.startswith("/") or ":" in mount.dst_path:
            yield f"{where}: dst_path {mount.dst_path!r} must be an absolute path without a colon"
        elif mount.dst_path in paths:
            yield f"{where}: dst_path {mount.dst_path!r} is already used by another mount"
        paths.add(mount.dst_path)
        if isinstance(mount, VolumeMount):
            if not SUBDOMAIN.accepts(mount.src):
                yield (
                    f"{where}: src {mount.src!r} is not a valid name of a persistent volume claim"
                    " (lower-case letters, digits, '-', '.')"
                )
        elif ".." in mount.src_path.split("/") or not mount.src_path.startswith("/"):
            yield f"{where}: src_path {mount.src_path!r} must be an absolute path on the node"
        if isinstance(mount, DeviceMount) and not (
            mount.permissions and _VALID_PERMISSIONS.issuperset(mount.permissions)
        ):
            yield f"{where}: permissions '{mount.permissions}': use r, w and m"
