"""Imports modules and attributes by name."""

from torchx._forward import forward

forward(
    __name__,
    "torchx._modules",
)
