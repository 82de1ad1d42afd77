"""Import path of the overlays in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.overlays",
)
