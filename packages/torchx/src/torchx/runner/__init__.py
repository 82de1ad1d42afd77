"""Import path of the runner in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.api",
    names={
        "AsyncRunner": "torchx_runner.async_runner.api",
        "Runner": "torchx_runner.api",
        "get_runner": "torchx_runner.api",
    },
    exported=(
        "AsyncRunner",
        "Runner",
        "get_runner",
    ),
)
