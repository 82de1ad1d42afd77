"""The older path of the colour codes."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_cli.output.colors",
)
