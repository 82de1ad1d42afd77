"""Checks that find the reasons why AWS Batch cannot run an app."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from torchx_sched_aws.batch.container import (
    DEVICE_PERMISSIONS,
    instance_type,
)
from torchx_sched_aws.batch.options import AWSBatchOpts, option_problems
from torchx_sched_aws.tags import make_tags
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource
from torchx_specs.schedulers.request_checks import RequestRules

# Quotas of AWS Batch.
MAX_ROLES = 5
#: Minimum memory of a Batch container, in MB.
MIN_MEMORY_MB = 4
#: Batch reserves environment variables with this prefix.
RESERVED_PREFIX = "AWS_BATCH"
RULES = RequestRules(
    needs_resource=False,
    needs_entrypoint=True,
    needs_image=True,
    max_retries=9,
)
_EFS = re.compile(r"fs-[0-9a-f]+(?::(?:fsap-[0-9a-f]+|/.*))?", re.S)


def request_problems(app: AppDef, opts: AWSBatchOpts) -> Iterator[str]:
    """Yield every problem of an app and its options, one line each."""
    yield from option_problems(opts)
    if len(app.roles) > MAX_ROLES:
        yield f"the app has {len(app.roles)} roles; a Batch job has at most {MAX_ROLES} node groups"
    try:
        make_tags(app.name, opts.user, app.metadata)
    except RequestError as e:
        yield from e.problems
    for role in app.roles:
        yield from (f"role '{role.name}': {problem}" for problem in _role_problems(role))
        for name in opts.secrets or ():
            if name in role.env:
                yield f"option secrets: '{name}' is also set in the env of role '{role.name}'"
    if sum(role.num_replicas for role in app.roles) > 1:
        kinds = {instance_type(role.resource) for role in app.roles} - {None}
        if len(kinds) > 1:
            yield (
                "the roles need different instance types"
                f" ({', '.join(sorted(map(str, kinds)))}); a multi-node job has one"
            )


def _role_problems(role: Role) -> Iterator[str]:
    for name in role.env:
        if name.startswith(RESERVED_PREFIX):
            yield f"env['{name}']: Batch reserves variables that begin with {RESERVED_PREFIX}"
    yield from _resource_problems(role.resource)
    for mount in role.mounts:
        yield from _mount_problems(mount)


def _resource_problems(resource: Resource) -> Iterator[str]:
    if resource.memMB < MIN_MEMORY_MB:
        yield (
            f"its resource has memMB={resource.memMB}, Batch needs {MIN_MEMORY_MB} or more; set"
            " Role.resource, for example to Resource(cpu=2, gpu=0, memMB=4096)"
        )
    if resource.gpu != int(resource.gpu):
        yield f"its resource has gpu={resource.gpu}; Batch needs a whole number"


def _mount_problems(mount: object) -> Iterator[str]:
    if isinstance(mount, DeviceMount):
        if not mount.permissions or not set(mount.permissions) <= DEVICE_PERMISSIONS.keys():
            yield (
                f"device '{mount.src_path}' has permissions '{mount.permissions}'; use one or more"
                " of r, w and m"
            )
        paths = [mount.src_path, mount.dst_path]
    elif isinstance(mount, BindMount):
        paths = [mount.src_path, mount.dst_path]
    elif isinstance(mount, VolumeMount):
        paths = [mount.dst_path]
        if not _EFS.fullmatch(mount.src):
            yield (
                f"volume '{mount.src}' is not an EFS file system; use fs-12345678,"
                " fs-12345678:/folder or fs-12345678:fsap-12345678"
            )
    else:
        yield f"{mount!r:.99} is not a BindMount, VolumeMount or DeviceMount"
        return
    for path in paths:
        if not os.path.isabs(path):
            yield f"mount path '{path}' is not absolute"
