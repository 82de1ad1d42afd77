"""Import path of :mod:`torchx_components.interpret` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.interpret",
)
