"""Older path of ``Tee``."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_kit.logs.streams",
)
