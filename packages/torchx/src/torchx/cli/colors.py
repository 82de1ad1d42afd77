"""Import path of the colour codes in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_cli.output.colors",
)
