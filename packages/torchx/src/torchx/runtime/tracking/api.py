"""Import path of the result trackers in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_apps.results",
)
