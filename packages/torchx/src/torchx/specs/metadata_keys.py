"""Older path of the metadata keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.constants import *

forward(
    __name__,
    "torchx_specs.constants",
)
