"""Workspaces: the same objects as ``torchx_specs.workspace``'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.workspace import *

forward(
    __name__,
    "torchx_specs.workspace",
    exported=(
        "MultiWorkspaceMixin",
        "WorkspaceMixin",
        "pin_workspace_images",
        "walk_workspace",
    ),
)
