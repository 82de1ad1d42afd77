"""Results of a job, kept by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_apps.results import *

forward(
    __name__,
    "torchx_apps.results",
    exported=(
        "FsspecResultTracker",
        "ResultTracker",
    ),
)
