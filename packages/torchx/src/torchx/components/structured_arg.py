"""Arguments with a grammar of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_components.structured_arg import *

forward(
    __name__,
    "torchx_components.structured_arg",
)
