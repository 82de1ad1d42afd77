"""Import path of :mod:`torchx_components.train` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.train",
)
