"""Import path of the test fixtures in older TorchX releases."""

from torchx._forward import forward, install_hint

forward(
    __name__,
    "torchx_testing.fixtures",
    missing=install_hint("testing", "torchx-testing"),
)
