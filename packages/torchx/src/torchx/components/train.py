"""Components that train."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.train",
)
