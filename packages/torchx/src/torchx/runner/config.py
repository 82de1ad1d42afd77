"""Older path of ``.torchxconfig``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx.schedulers._factories import get_scheduler_factories as get_scheduler_factories
    from torchx_runner.config import *
    from torchx_specs.schedulers import Scheduler as Scheduler
    from torchx_specs.settings import ENV_TORCHXCONFIG as ENV_TORCHXCONFIG

forward(
    __name__,
    "torchx_runner.config",
    "torchx_specs",
    names={
        "ENV_TORCHXCONFIG": "torchx_specs.settings",
        "get_scheduler_factories": "torchx.schedulers._factories",
        "Scheduler": "torchx_specs.schedulers",
    },
)
