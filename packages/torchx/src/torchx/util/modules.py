"""Imports by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._modules import *

forward(
    __name__,
    "torchx._modules",
)
