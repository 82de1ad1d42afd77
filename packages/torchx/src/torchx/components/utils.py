"""Import path of the components for common jobs in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.utils",
)
