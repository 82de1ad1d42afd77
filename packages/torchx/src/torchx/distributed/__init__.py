"""Helpers for programs that run in a distributed job."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_apps.distributed",
)
