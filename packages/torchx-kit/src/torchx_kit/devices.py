"""Devices that a container needs for what a role's resource asks for (``Resource.devices``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

from torchx_specs.errors import nearest
from torchx_specs.model.mounts import DeviceMount


def to_devicemounts(num_devices: int, device_type: str) -> list[DeviceMount]:
    """Returns mounts of ``device_type`` + ``0``, ``1`` ..., each under its own path.

    >>> [mount.src_path for mount in to_devicemounts(2, "/dev/neuron")]
    ['/dev/neuron0', '/dev/neuron1']
    """
    return [
        DeviceMount(src_path=f"{device_type}{i}", dst_path=f"{device_type}{i}")
        for i in range(num_devices)
    ]


def neuron_to_devicemounts(num_devices: int) -> list[DeviceMount]:
    """Returns the mounts of AWS Neuron devices."""
    return to_devicemounts(num_devices, "/dev/neuron")


def efa_to_devicemounts(num_devices: int) -> list[DeviceMount]:
    """Returns the mounts of AWS Elastic Fabric Adapters."""
    return to_devicemounts(num_devices, "/dev/infiniband/uverbs")


#: How the devices of each name are mounted.
DEVICES: dict[str, Callable[[int], list[DeviceMount]]] = {
    "vpc.amazonaws.com/efa": efa_to_devicemounts,
    "aws.amazon.com/neurondevice": neuron_to_devicemounts,
}


def get_device_mounts(devices: Mapping[str, int]) -> list[DeviceMount]:
    """Returns the mounts for ``{device name: how many}``.

    A device that nobody knows is left out, with a warning.
    """
    mounts: list[DeviceMount] = []
    for name, count in devices.items():
        if name in DEVICES:
            mounts += DEVICES[name](count)
        else:
            known = ", ".join(DEVICES)
            warnings.warn(
                f"device '{name}' is not known, it is not mounted;{nearest(name, DEVICES)}"
                f" known: {known}",
                stacklevel=2,
            )
    return mounts
