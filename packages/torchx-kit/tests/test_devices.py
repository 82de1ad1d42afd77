"""Tests of the mounts of devices that a role requests."""

from __future__ import annotations

import pytest

from torchx_kit import devices
from torchx_specs import DeviceMount


def test_known_devices_are_mounted_at_their_own_path() -> None:
    mounts = devices.get_device_mounts(
        {"vpc.amazonaws.com/efa": 2, "aws.amazon.com/neurondevice": 1}
    )
    assert mounts == [
        DeviceMount("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0", "rwm"),
        DeviceMount("/dev/infiniband/uverbs1", "/dev/infiniband/uverbs1", "rwm"),
        DeviceMount("/dev/neuron0", "/dev/neuron0", "rwm"),
    ]


def test_a_count_of_zero_mounts_nothing() -> None:
    assert devices.get_device_mounts({"vpc.amazonaws.com/efa": 0}) == []


def test_an_unknown_device_is_a_warning_that_suggests_the_nearest() -> None:
    with pytest.warns(UserWarning, match="'vpc.amazonaws.com/efaa'.*did you mean"):
        mounts = devices.get_device_mounts({"vpc.amazonaws.com/efaa": 1})
    assert mounts == []


def test_devices_has_the_function_of_each_device() -> None:
    assert devices.DEVICES["vpc.amazonaws.com/efa"](1) == devices.efa_to_devicemounts(1)
    assert devices.DEVICES["aws.amazon.com/neurondevice"](1) == devices.neuron_to_devicemounts(1)
    assert devices.to_devicemounts(1, "/dev/x") == [DeviceMount("/dev/x0", "/dev/x0")]
