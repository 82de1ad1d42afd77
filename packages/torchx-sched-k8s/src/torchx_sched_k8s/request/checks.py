"""Check an app and its options, without a request to a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_kit.role_checks import (
    app_problems,
    entrypoint_problems,
    image_problems,
    replica_count_problems,
    text_problem,
    text_problems,
)
from torchx_sched_k8s.options import SUBDOMAIN, KubernetesOpts, problems_of
from torchx_sched_k8s.request.pods import SHARED_MEMORY
from torchx_sched_k8s.request.retries import problems_of_retries, problems_of_success
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount

_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_VALID_PERMISSIONS = frozenset("rwm")
#: Name of the API in error messages.
_API = "the Kubernetes API"


def check(app: AppDef, opts: KubernetesOpts) -> None:
    """Check an app and the options.

    Args:
        app: The app.
        opts: The scheduler's options.

    Raises:
        RequestError: The app or the options are invalid; the error lists all problems, but those
            of retries and success policies only if there are no others.
    """
    problems = [*problems_of(opts), *problems_of_app(app, opts.image)]
    problems += _problems_of_security(app, opts)
    if opts.api == "batch" and opts.queue and len(app.roles) > 1:
        problems.append(
            f"option queue={opts.queue}: with job_api=batch Kueue admits the Job of each of the"
            f" {len(app.roles)} roles by itself, so some roles may wait for quota that others hold;"
            " use job_api=jobset, which Kueue admits as a whole"
        )
    if not problems:
        problems += problems_of_retries(app, opts, opts.api)
        problems += problems_of_success(app, opts)
    if problems:
        raise RequestError(problems)


def _problems_of_security(app: AppDef, opts: KubernetesOpts) -> Iterable[str]:
    """Yield an error text for each mount that the option ``pod_security`` forbids."""
    if opts.pod_security is None:
        return
    for role in app.roles:
        for i, mount in enumerate(role.mounts):
            if isinstance(mount, (BindMount, DeviceMount)):
                yield (
                    f"role '{role.name}': mounts[{i}] mounts {mount.src_path!r} of the node, which"
                    f" pod_security={opts.pod_security} forbids; use a VolumeMount, or the option"
                    " volumes"
                )


def problems_of_app(app: AppDef, image: str | None = None) -> Iterable[str]:
    """Yield an error text for each property of an app that makes every cluster reject it.

    Args:
        app: The app.
        image: Image for roles without an image.
    """
    yield from app_problems(app)
    for role in app.roles:
        yield from (f"role '{role.name}': {problem}" for problem in problems_of_role(role, image))
    problem = text_problem(app.name, _API)
    if problem:
        yield f"the app's name {problem}"


def problems_of_role(role: Role, image: str | None = None) -> Iterable[str]:
    """Yield an error text for each property of a role that is invalid in Kubernetes.

    Args:
        role: The role.
        image: Image to use if the role has none.
    """
    if not role.name:
        yield "it has no name; set Role.name"
    yield from replica_count_problems(role)
    if role.min_replicas is not None and not 0 <= role.min_replicas <= role.num_replicas:
        yield (
            f"min_replicas is {role.min_replicas}; it must be 0 to {role.num_replicas}"
            " (num_replicas)"
        )
    # an empty image is accepted, because an overlay may set one
    if role.image in (NONE, MISSING):
        if not image:
            yield "no image; set Role.image, or the option image"
    elif role.image:
        yield from image_problems(role)
    yield from entrypoint_problems(role)
    yield from text_problems(role, _API)
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
            continue  # PodMaker raises MountTypeError for it
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
