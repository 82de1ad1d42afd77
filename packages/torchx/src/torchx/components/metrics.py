"""Import path of the components that show metrics in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.metrics",
)
