"""Components that serve models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_components.serve import *

forward(
    __name__,
    "torchx_components.serve",
)
