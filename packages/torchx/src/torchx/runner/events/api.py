"""Older path of the event types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_runner.events import *

forward(
    __name__,
    "torchx_runner.events",
)
