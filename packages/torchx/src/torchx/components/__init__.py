"""Import path of the built-in components in older TorchX releases."""

from torchx import version as _version  # first: sets the default image, which components read
from torchx._forward import forward

forward(
    __name__,
    "torchx_components",
)
