"""Older path of the ``dir`` workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs import Role as Role
    from torchx_specs.workspace import WorkspaceMixin as WorkspaceMixin
    from torchx_specs.workspace.dir import *
    from torchx_specs.workspace.walk import walk_workspace as walk_workspace

forward(
    __name__,
    "torchx_specs.workspace.dir",
    names={
        "WorkspaceMixin": "torchx_specs.workspace",
        "walk_workspace": "torchx_specs.workspace.walk",
        "Role": "torchx_specs",
    },
)
