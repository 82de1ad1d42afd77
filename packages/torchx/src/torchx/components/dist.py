"""Import path of the components for distributed PyTorch in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.dist",
    "torchx_specs",
)
