"""What Batch cannot run: checks of an app and its roles."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from torchx_kit import role_checks
from torchx_sched_aws.batch.container import (
    DEVICE_PERMISSIONS,
    instance_type,
)
from torchx_sched_aws.batch.options import AWSBatchOpts, problems_of
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource

# Quotas of AWS Batch; what is counted is the request as the SDK writes it.
MOST_ROLES = 5
MOST_ATTEMPTS = 10
#: Name of the API, for messages.
API = "AWS's API"
#: Memory that Batch asks for at least, in MB.
LEAST_MEMORY = 4
#: Variables of this beginning are Batch's own.
RESERVED = "AWS_BATCH"
_EFS = re.compile(r"fs-[0-9a-f]+(?::(?:fsap-[0-9a-f]+|/.*))?", re.S)


def app_problems(app: AppDef, opts: AWSBatchOpts) -> Iterator[str]:
    yield from problems_of(opts)
    yield from role_checks.app_problems(app)
    if len(app.roles) > MOST_ROLES:
        yield f"{len(app.roles)} roles: a job of AWS Batch has {MOST_ROLES} groups of nodes at most"
    why = role_checks.text_problem(app.name, API)
    if why:
        yield f"the app's name {why}"
    for role in app.roles:
        yield from (f"role '{role.name}': {problem}" for problem in problems_of_role(role))
        if role.max_retries >= MOST_ATTEMPTS:
            yield (
                f"role '{role.name}': max_retries is {role.max_retries}, Batch retries"
                f" {MOST_ATTEMPTS - 1} times at most"
            )
        for name in opts.secrets or ():
            if name in role.env:
                yield f"option secrets: role '{role.name}' has the variable '{name}' in its env"
    if sum(role.num_replicas for role in app.roles) > 1:
        kinds = {instance_type(role.resource) for role in app.roles} - {None}
        if len(kinds) > 1:
            yield (
                "the roles ask for different instance types"
                f" ({', '.join(sorted(map(str, kinds)))}); a job of several nodes has one"
            )


def problems_of_role(role: Role) -> Iterator[str]:
    """Yields what Batch could not do of a role, one line each."""
    yield from role_checks.image_problems(role)
    yield from role_checks.entrypoint_problems(role)
    yield from role_checks.replica_count_problems(role)
    yield from role_checks.text_problems(role, API)
    for name in role.env:
        if name.startswith(RESERVED):
            yield f"env['{name}']: Batch keeps variables that begin with {RESERVED} for itself"
    yield from _resource_problems(role.resource)
    for mount in role.mounts:
        yield from _mount_problems(mount)


def _resource_problems(resource: Resource) -> Iterator[str]:
    if resource.memMB < LEAST_MEMORY:
        asked = f"{resource.memMB} MB of memory" if resource.memMB >= 0 else "no memory"
        yield (
            f"it asks for {asked}, Batch needs {LEAST_MEMORY} MB or more; set Role.resource, e.g."
            " Resource(cpu=2, gpu=0, memMB=4096)"
        )
    if resource.gpu != int(resource.gpu):
        yield f"it asks for {resource.gpu} GPUs, Batch gives whole ones"


def _mount_problems(mount: object) -> Iterator[str]:
    if isinstance(mount, DeviceMount):
        if not mount.permissions or not set(mount.permissions) <= DEVICE_PERMISSIONS.keys():
            yield (
                f"permissions '{mount.permissions}' of the device {mount.src_path}: use r, w and m"
            )
        paths = [mount.src_path, mount.dst_path]
    elif isinstance(mount, BindMount):
        paths = [mount.src_path, mount.dst_path]
    elif isinstance(mount, VolumeMount):
        paths = [mount.dst_path]
        if not _EFS.fullmatch(mount.src):
            yield (
                f"volume '{mount.src}': Batch mounts EFS file systems; give fs-12345678,"
                " fs-12345678:/folder or fs-12345678:fsap-12345678"
            )
    else:
        yield f"{mount!r:.99} is no mount; give a BindMount, VolumeMount or DeviceMount"
        return
    for path in paths:
        if not os.path.isabs(path):
            yield f"mount '{path}': not an absolute path"
