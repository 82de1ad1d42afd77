"""Types of component arguments that are parsed from one text, such as ``2x8``."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.structured_arg",
)
