"""Container properties of a role: resources, environment variables and mounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from math import ceil
from typing import Any

from torchx_kit.devices import get_device_mounts
from torchx_specs.model.app import Role
from torchx_specs.model.mounts import BindMount, DeviceMount
from torchx_specs.model.resources import Resource

#: Capability of a resource whose value is the instance type.
INSTANCE_TYPE = "node.kubernetes.io/instance-type"

DEVICE_PERMISSIONS = {"r": "READ", "w": "WRITE", "m": "MKNOD"}


class ResourceType(Enum):
    """Types of a container's resource requirements."""

    VCPU = 1
    GPU = 2
    MEMORY = 3


def resource_requirements_from_resource(resource: Resource) -> list[dict[str, str]]:
    """Return a resource as Batch's resource requirements, with at least one CPU."""
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
    """Return the resource for Batch's resource requirements; an unknown CPU or memory is -1."""
    values = {item["type"]: int(float(item["value"])) for item in resource_requirements}
    return Resource(
        cpu=values.get(ResourceType.VCPU.name, -1),
        gpu=values.get(ResourceType.GPU.name, 0),
        memMB=values.get(ResourceType.MEMORY.name, -1),
    )


def instance_type(resource: Resource) -> str | None:
    """Return the instance type that a resource names, or None."""
    found = resource.capabilities.get(INSTANCE_TYPE)
    return str(found) if found else None


def environment(variables: Mapping[str, str]) -> list[dict[str, str]]:
    """Return environment variables in Batch's form."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def storage(role: Role, shm_mb: int | None) -> dict[str, Any]:
    """Return the volumes, mount points and Linux parameters of a role's containers.

    Args:
        role: The role.
        shm_mb: Size of /dev/shm in MB; None means the memory of the container.
    """
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
                    "permissions": [DEVICE_PERMISSIONS[p] for p in mount.permissions],
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


def _efs(source: str) -> dict[str, Any]:
    file_system, _, below = source.partition(":")
    volume: dict[str, Any] = {"fileSystemId": file_system}
    if below.startswith("/"):
        volume["rootDirectory"] = below
    elif below:
        volume["transitEncryption"] = "ENABLED"
        volume["authorizationConfig"] = {"accessPointId": below}
    return volume
