"""Distributed components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_components.dist import *

forward(
    __name__,
    "torchx_components.dist",
    "torchx_specs",
)
