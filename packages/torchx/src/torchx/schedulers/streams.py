"""Older path of ``Tee``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.schedulers.streams import *

forward(
    __name__,
    "torchx_specs.schedulers.streams",
)
