"""Older path of the scheduler contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.schedulers.api import *
    from torchx_specs.structured_opts import _unwrap_optional as _unwrap_optional
    from torchx_specs.structured_opts import is_structured_opts as _is_structured_opts
    from torchx_specs.workspace import WorkspaceMixin as WorkspaceMixin

forward(
    __name__,
    "torchx_specs.schedulers.api",
    "torchx_specs",
    names={
        "WorkspaceMixin": "torchx_specs.workspace",
        "_is_structured_opts": "torchx_specs.structured_opts:is_structured_opts",
        "_unwrap_optional": "torchx_specs.structured_opts",
    },
)
