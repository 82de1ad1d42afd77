"""Older path of the typed capability keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.capabilities import *

forward(
    __name__,
    "torchx_specs.capabilities",
)
