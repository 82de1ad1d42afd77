"""Import path of the metadata keys in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.model.constants",
)
