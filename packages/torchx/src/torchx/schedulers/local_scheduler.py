"""Older path of ``local_cwd``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_sched_local.scheduler import *
    from torchx_sched_local.scheduler import LocalOpts as Opts
    from torchx_specs.arguments.types import none_throws as none_throws
    from torchx_specs.schedulers.streams import Tee as Tee

forward(
    __name__,
    "torchx_sched_local.scheduler",
    "torchx_specs.schedulers.api",
    "torchx_specs",
    "torchx_specs.schedulers.ids",
    names={
        "none_throws": "torchx_specs.arguments.types",
        "Tee": "torchx_specs.schedulers.streams",
        "Opts": "torchx_sched_local.scheduler:LocalOpts",
    },
)
