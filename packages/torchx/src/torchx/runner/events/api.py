"""Import path of the event types in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.events.api",
)
