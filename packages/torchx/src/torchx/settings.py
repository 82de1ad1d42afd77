"""The names of environment variables that older TorchX releases have in this module."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.settings",
)
