"""Distributed components."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.dist",
    "torchx_specs",
)
