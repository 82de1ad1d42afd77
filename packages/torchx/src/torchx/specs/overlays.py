"""Older path of the overlays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.overlays import *

forward(
    __name__,
    "torchx_specs.overlays",
)
