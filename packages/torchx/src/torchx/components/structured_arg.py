"""Arguments with a grammar of their own."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.structured_arg",
)
