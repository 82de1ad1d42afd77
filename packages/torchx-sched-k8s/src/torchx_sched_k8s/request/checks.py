"""Checks of an app and its options, made without a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_sched_k8s.options import SUBDOMAIN, KubernetesOpts, problems_of
from torchx_sched_k8s.request.pods import SHARED_MEMORY
from torchx_sched_k8s.request.retries import problems_of_retries
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount

_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_VALID_PERMISSIONS = frozenset("rwm")


def check(app: AppDef, opts: KubernetesOpts) -> None:
    """Checks that a cluster can be asked for an app's objects.

    Raises:
        RequestError: names everything that is wrong
    """
    problems = [*problems_of(opts), *problems_of_app(app, opts.image)]
    if not problems:
        problems += problems_of_retries(app, opts, opts.api)
    if problems:
        raise RequestError(problems)


def problems_of_app(app: AppDef, image: str | None = None) -> Iterable[str]:
    """Yields everything about an app that no cluster could do, one line each.

    Args:
        app: the app
        image: for roles that name none
    """
    if not app.roles:
        yield f"app '{app.name}' has no roles"
    names = [role.name for role in app.roles]
    yield from (
        f"several roles are named '{n}'" for n in dict.fromkeys(names) if names.count(n) > 1
    )
    for role in app.roles:
        yield from (f"role '{role.name}': {problem}" for problem in problems_of_role(role, image))
    why = unsuitable(app.name)
    if why:
        yield f"the app's name {why}"


def problems_of_role(role: Role, image: str | None = None) -> Iterable[str]:
    """Yields everything about a role that no pod could have, one line each.

    Args:
        role: the role
        image: for roles that name none
    """
    if not role.name:
        yield "it has no name"
    if role.num_replicas < 1:
        yield f"it has {role.num_replicas} replicas; at least one is needed"
    if role.max_retries < 0:
        yield f"max_retries is {role.max_retries}; it cannot be negative"
    if role.min_replicas is not None and not 0 <= role.min_replicas <= role.num_replicas:
        yield f"min_replicas is {role.min_replicas}, of {role.num_replicas} replicas"
    # an empty one may come by an overlay; what a cluster thinks of none at all, it says itself
    if role.image in (NONE, MISSING) and not image:
        yield "it has no image; set Role.image, or the option image"
    elif any(c.isspace() or not c.isprintable() for c in role.image):
        yield f"{role.image!r} is no name of an image"
    if not role.entrypoint or role.entrypoint == MISSING:
        yield "no entrypoint; set Role.entrypoint to the program to run"
    words = {"its name": role.name, "entrypoint": role.entrypoint}
    words.update({f"args[{i}]": str(arg) for i, arg in enumerate(role.args)})
    for where, word in words.items():
        why = unsuitable(word)
        if why:
            yield f"{where} {why}"
    for key, value in role.env.items():
        if not _ENV_NAME.match(key):
            yield f"env has {key!r}, which is no variable's name in a cluster"
        why = unsuitable(key + str(value))
        if why:
            yield f"env[{key!r}] {why}"
    for name, port in role.port_map.items():
        if not 0 < port < 65536:
            yield f"port_map['{name}'] is {port}, which is no port"
    yield from _problems_of_mounts(role)


def _problems_of_mounts(role: Role) -> Iterable[str]:
    paths = {SHARED_MEMORY}
    for i, mount in enumerate(role.mounts):
        if not isinstance(mount, (BindMount, VolumeMount, DeviceMount)):
            continue  # raised with a type of its own where the pod is made
        where = f"mounts[{i}]"
        if not mount.dst_path.startswith("/") or ":" in mount.dst_path:
            yield f"{where}: {mount.dst_path!r} is no absolute path without a colon"
        elif mount.dst_path in paths:
            yield f"{where}: something is mounted at {mount.dst_path} already"
        paths.add(mount.dst_path)
        if isinstance(mount, VolumeMount):
            if not SUBDOMAIN.accepts(mount.src):
                yield f"{where}: {mount.src!r} is no name of a persistent volume claim"
        elif ".." in mount.src_path.split("/") or not mount.src_path.startswith("/"):
            yield f"{where}: {mount.src_path!r} is no absolute path on a node"
        if isinstance(mount, DeviceMount) and not (
            mount.permissions and _VALID_PERMISSIONS.issuperset(mount.permissions)
        ):
            yield f"{where}: permissions '{mount.permissions}': use r, w and m"


def unsuitable(text: str) -> str:
    """Returns why a cluster cannot carry a text, empty if it can."""
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "holds bytes that are not UTF-8, which the API of Kubernetes cannot carry"
    return ""
