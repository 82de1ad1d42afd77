"""In-job tracker API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_tracker import *
    from torchx_tracker import AppRun as AppRun
    from torchx_tracker import app_run_from_env as app_run_from_env

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
