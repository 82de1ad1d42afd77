"""Names of the environment variables that launcher and job share."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.settings",
)
