"""Import path of the session id in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.session_id",
    names={
        "TORCHX_INTERNAL_SESSION_ID": "torchx_specs.settings:ENV_TORCHX_INTERNAL_SESSION_ID",
    },
)
