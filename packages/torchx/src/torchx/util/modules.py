"""Imports modules and attributes by name."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx._modules",
)
