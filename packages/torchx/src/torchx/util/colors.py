"""Terminal colour codes; empty strings if standard output is not a terminal."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_cli.output.colors",
)
