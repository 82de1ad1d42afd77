"""Import path of the helpers for distributed programs in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_apps.distributed",
)
