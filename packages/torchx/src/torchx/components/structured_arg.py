"""Old import path of the types for arguments such as ``-j 2x8``; forwards to torchx_components."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_components.structured_arg",
)
