"""Built-in components."""

from __future__ import annotations

from torchx import version as _version  # first: it decides the image that components take
from torchx._forward import forward

forward(
    __name__,
    "torchx_components",
)
