"""Older path of the event handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx.plugins._registration import PluginType as PluginType
    from torchx.plugins._registry import registry as registry
    from torchx_runner.event_handlers import *

forward(
    __name__,
    "torchx_runner.event_handlers",
    names={
        "PluginType": "torchx.plugins._registration",
        "registry": "torchx.plugins._registry",
    },
)
