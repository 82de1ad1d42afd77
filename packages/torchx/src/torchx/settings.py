"""Names of the environment variables that the launcher sets for a job."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.settings",
)
