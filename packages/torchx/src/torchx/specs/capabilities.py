"""Import path of the typed capability keys in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.resources.capabilities",
)
