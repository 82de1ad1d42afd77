"""The names of environment variables that older TorchX releases have in this module."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.settings",
)
