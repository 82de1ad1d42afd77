"""Helpers inside a distributed job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_apps.distributed import *

forward(
    __name__,
    "torchx_apps.distributed",
)
