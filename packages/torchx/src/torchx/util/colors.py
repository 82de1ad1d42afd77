"""Colour codes, empty where standard output is no terminal."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_cli.output.colors",
)
