"""Older path of the metadata keys."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.model.constants",
)
