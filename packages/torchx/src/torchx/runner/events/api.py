"""Import path of the event types in older TorchX releases."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.events.api",
)
