"""Older path of the runner's events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_runner.event_handlers import get_logging_handler as get_logging_handler
    from torchx_runner.events import *
    from torchx_runner.session import get_session_id_or_create_new as get_session_id_or_create_new

forward(
    __name__,
    "torchx_runner.events",
    names={
        "get_session_id_or_create_new": "torchx_runner.session",
        "get_logging_handler": "torchx_runner.event_handlers",
    },
)
