"""Import path of ``Tee`` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_kit.logs.streams",
)
