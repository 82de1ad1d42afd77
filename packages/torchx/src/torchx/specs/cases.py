"""Import path of the case conversions in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.cases",
)
