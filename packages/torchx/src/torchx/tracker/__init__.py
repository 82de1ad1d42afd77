"""The tracker API for programs that run in a job."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_tracker",
    names={
        "AppRun": "torchx_tracker",
        "app_run_from_env": "torchx_tracker",
    },
    exported=(
        "AppRun",
        "app_run_from_env",
    ),
)
