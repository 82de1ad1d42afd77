"""Import path of the argument decoding helpers in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx._legacy_types",
)
