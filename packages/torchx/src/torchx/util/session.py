"""Older path of the session id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_runner.session import *
    from torchx_specs.settings import ENV_TORCHX_INTERNAL_SESSION_ID as TORCHX_INTERNAL_SESSION_ID

forward(
    __name__,
    "torchx_runner.session",
    names={
        "TORCHX_INTERNAL_SESSION_ID": "torchx_specs.settings:ENV_TORCHX_INTERNAL_SESSION_ID",
    },
)
