"""The older path of the event types."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.events.api",
)
