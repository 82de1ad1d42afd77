"""Device mounts for the devices that a role requests (``Resource.devices``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

from torchx_specs.errors import nearest
from torchx_specs.model.mounts import DeviceMount


def to_devicemounts(num_devices: int, device_type: str) -> list[DeviceMount]:
    """Return mounts of ``<device_type>0``, ``<device_type>1`` and so on.

    A device has the same path in the container as on the host.

    >>> [mount.src_path for mount in to_devicemounts(2, "/dev/neuron")]
    ['/dev/neuron0', '/dev/neuron1']
    """
    return [
        DeviceMount(src_path=f"{device_type}{i}", dst_path=f"{device_type}{i}")
        for i in range(num_devices)
    ]


def neuron_to_devicemounts(num_devices: int) -> list[DeviceMount]:
    """Return the mounts of AWS Neuron devices."""
    return to_devicemounts(num_devices, "/dev/neuron")


def efa_to_devicemounts(num_devices: int) -> list[DeviceMount]:
    """Return the mounts of AWS Elastic Fabric Adapters."""
    return to_devicemounts(num_devices, "/dev/infiniband/uverbs")


#: Maps the name of a device to a function that returns the mounts for a number of devices.
DEVICES: dict[str, Callable[[int], list[DeviceMount]]] = {
    "vpc.amazonaws.com/efa": efa_to_devicemounts,
    "aws.amazon.com/neurondevice": neuron_to_devicemounts,
}


def get_device_mounts(devices: Mapping[str, int]) -> list[DeviceMount]:
    """Return the mounts of devices; skip unknown devices with a warning.

    Args:
        devices: The number of devices, by the name of the device.
    """
    mounts: list[DeviceMount] = []
    for name, count in devices.items():
        if name in DEVICES:
            mounts += DEVICES[name](count)
        else:
            known = ", ".join(DEVICES)
            warnings.warn(
                f"unknown device '{name}' is not mounted;{nearest(name, DEVICES)}"
                f" known devices: {known}",
                stacklevel=2,
            )
    return mounts
