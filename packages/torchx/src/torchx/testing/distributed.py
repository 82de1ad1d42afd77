"""Import path of the distributed test case in older TorchX releases."""

from torchx._forward import forward, install_hint

forward(
    __name__,
    "torchx_testing.distributed",
    missing=install_hint("testing", "torchx-testing"),
)
