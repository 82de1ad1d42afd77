"""Built-in components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx import version as _version  # first: it decides the image that components take
from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_components import *

forward(
    __name__,
    "torchx_components",
)
