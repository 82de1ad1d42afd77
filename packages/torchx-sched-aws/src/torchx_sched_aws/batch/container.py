"""A role as the properties of its containers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from math import ceil
from typing import Any

from torchx_kit.devices import get_device_mounts
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import Resource

#: Capability by which a named resource says its instance type.
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
#: Memory that Batch asks for at least, in MB.
LEAST_MEMORY = 4
#: Variables of this beginning are Batch's own.
RESERVED = "AWS_BATCH"

_PERMISSIONS = {"r": "READ", "w": "WRITE", "m": "MKNOD"}
_EFS = re.compile(r"fs-[0-9a-f]+(?::(?:fsap-[0-9a-f]+|/.*))?", re.S)


class ResourceType(Enum):
    """What a container asks for."""

    VCPU = 1
    GPU = 2
    MEMORY = 3


def resource_requirements_from_resource(resource: Resource) -> list[dict[str, str]]:
    """Returns a resource as Batch's requirements; without CPUs it is one."""
    required = [
        {"type": ResourceType.VCPU.name, "value": str(max(1, ceil(resource.cpu)))},
        {"type": ResourceType.MEMORY.name, "value": str(int(resource.memMB))},
    ]
    if resource.gpu > 0:
        required.append({"type": ResourceType.GPU.name, "value": str(int(resource.gpu))})
    return required


def resource_from_resource_requirements(
    resource_requirements: Sequence[Mapping[str, str]],
) -> Resource:
    """Returns Batch's requirements as a resource."""
    values = {item["type"]: int(float(item["value"])) for item in resource_requirements}
    return Resource(
        cpu=values.get(ResourceType.VCPU.name, -1),
        gpu=values.get(ResourceType.GPU.name, 0),
        memMB=values.get(ResourceType.MEMORY.name, -1),
    )


def instance_type(resource: Resource) -> str | None:
    """Returns the instance type a resource asks for, None if it names none."""
    found = resource.capabilities.get(INSTANCE_TYPE)
    return str(found) if found else None


def environment(variables: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns variables as Batch wants them."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def storage(role: Role, shm_mb: int | None) -> dict[str, Any]:
    """Returns volumes, mount points and Linux parameters of a role's containers."""
    volumes: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for i, mount in enumerate([*role.mounts, *get_device_mounts(role.resource.devices)]):
        name = f"mount_{i}"
        if isinstance(mount, DeviceMount):
            devices.append(
                {
                    "hostPath": mount.src_path,
                    "containerPath": mount.dst_path,
                    "permissions": [_PERMISSIONS[p] for p in mount.permissions],
                }
            )
            continue
        if isinstance(mount, BindMount):
            volumes.append({"name": name, "host": {"sourcePath": mount.src_path}})
        else:
            volumes.append({"name": name, "efsVolumeConfiguration": _efs(mount.src)})
        points.append(
            {
                "sourceVolume": name,
                "containerPath": mount.dst_path,
                "readOnly": mount.read_only,
            }
        )
    linux: dict[str, Any] = {"sharedMemorySize": shm_mb or int(role.resource.memMB)}
    if devices:
        linux["devices"] = devices
    found: dict[str, Any] = {"linuxParameters": linux}
    if volumes:
        found.update(mountPoints=points, volumes=volumes)
    return found


def problems_of_role(role: Role) -> Iterator[str]:
    """Yields what Batch could not do of a role, one line each."""
    if not role.image:
        yield "it has no image; set Role.image to the one to run"
    elif any(c.isspace() or not c.isprintable() for c in role.image):
        yield f"{role.image!r} is no name of an image"
    if not role.entrypoint or role.entrypoint == MISSING:
        yield "no entrypoint; set Role.entrypoint to the program to run"
    if role.num_replicas < 1:
        yield f"num_replicas is {role.num_replicas}; Batch runs 1 or more"
    if role.max_retries < 0:
        yield f"max_retries is {role.max_retries}"
    words = {"its name": role.name, "entrypoint": role.entrypoint}
    words.update({f"args[{i}]": arg for i, arg in enumerate(role.args)})
    for where, word in words.items():
        why = unsuitable(word)
        if why:
            yield f"{where} {why}"
    for key, value in role.env.items():
        if not key or "=" in key:
            yield f"env has {key!r}, which is no variable's name"
        elif key.startswith(RESERVED):
            yield f"env['{key}']: Batch keeps variables that begin with {RESERVED} for itself"
        why = unsuitable(key + value)
        if why:
            yield f"env[{key!r}] {why}"
    yield from _resource_problems(role.resource)
    for mount in role.mounts:
        yield from _mount_problems(mount)


def unsuitable(text: str) -> str:
    """Returns why Batch cannot carry a text, empty if it can."""
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "holds bytes that are not UTF-8, which AWS's API cannot carry"
    return ""


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
        if not mount.permissions or not set(mount.permissions) <= _PERMISSIONS.keys():
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


def _efs(source: str) -> dict[str, Any]:
    file_system, _, below = source.partition(":")
    volume: dict[str, Any] = {"fileSystemId": file_system}
    if below.startswith("/"):
        volume["rootDirectory"] = below
    elif below:
        volume["transitEncryption"] = "ENABLED"
        volume["authorizationConfig"] = {"accessPointId": below}
    return volume
