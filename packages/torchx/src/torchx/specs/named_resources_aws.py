"""Older path of the AWS named resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._legacy_specs import EFA_DEVICE as EFA_DEVICE
    from torchx._legacy_specs import NEURON_DEVICE as NEURON_DEVICE
    from torchx_resources_aws import *
    from torchx_specs import Resource as Resource
    from torchx_specs.constants import GiB as GiB

forward(
    __name__,
    "torchx_resources_aws",
    names={
        "GiB": "torchx_specs.constants",
        "Resource": "torchx_specs",
        "EFA_DEVICE": "torchx._legacy_specs",
        "NEURON_DEVICE": "torchx._legacy_specs",
    },
)
