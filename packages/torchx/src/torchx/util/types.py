"""Older path of the argument decoding helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.arguments.types import *

forward(
    __name__,
    "torchx_specs.arguments.types",
)
