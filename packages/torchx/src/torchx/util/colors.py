"""Names of :mod:`torchx_cli.output.colors`: terminal colour codes, empty without a terminal."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_cli.output.colors",
)
