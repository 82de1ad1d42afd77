"""Older path of the generic named resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs import Resource as Resource
    from torchx_specs.constants import GiB as GiB
    from torchx_specs.named_resources_generic import *

forward(
    __name__,
    "torchx_specs.named_resources_generic",
    names={
        "GiB": "torchx_specs.constants",
        "Resource": "torchx_specs",
    },
)
