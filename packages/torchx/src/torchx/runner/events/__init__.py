"""Import path of the runner's events in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.events.api",
    names={
        "get_session_id_or_create_new": "torchx_runner.session_id",
        "get_logging_handler": "torchx_runner.events.handlers",
    },
)
