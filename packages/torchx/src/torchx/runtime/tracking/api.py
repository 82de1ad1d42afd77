"""Older path of the result trackers."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_apps.results",
)
