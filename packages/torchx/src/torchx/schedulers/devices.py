"""Older path of the device mounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._legacy_specs import EFA_DEVICE as EFA_DEVICE
    from torchx._legacy_specs import NEURON_DEVICE as NEURON_DEVICE
    from torchx_specs import DeviceMount as DeviceMount
    from torchx_specs.schedulers.devices import *

forward(
    __name__,
    "torchx_specs.schedulers.devices",
    names={
        "DeviceMount": "torchx_specs",
        "EFA_DEVICE": "torchx._legacy_specs",
        "NEURON_DEVICE": "torchx._legacy_specs",
    },
)
