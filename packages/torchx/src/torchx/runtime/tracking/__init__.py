"""Stores and reads the results of a job by key."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_apps.results",
    exported=(
        "FsspecResultTracker",
        "ResultTracker",
    ),
)
