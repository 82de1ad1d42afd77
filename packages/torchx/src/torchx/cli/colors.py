"""Older path of the colour codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_cli.colors import *

forward(
    __name__,
    "torchx_cli.colors",
)
