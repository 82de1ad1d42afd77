"""Import path of the runner in older TorchX releases."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.api",
    names={
        "Runner": "torchx_runner.api",
        "get_runner": "torchx_runner.api",
    },
    exported=(
        "Runner",
        "get_runner",
    ),
)
