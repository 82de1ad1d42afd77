"""Older path of the workspace contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._legacy_workspace import PackageType as PackageType
    from torchx._legacy_workspace import PkgInfo as PkgInfo
    from torchx._legacy_workspace import WorkspaceBuilder as WorkspaceBuilder
    from torchx._legacy_workspace import WorkspaceConfigType as WorkspaceConfigType
    from torchx_specs.workspace.api import *

forward(
    __name__,
    "torchx_specs.workspace.api",
    "torchx_specs.workspace.walk",
    "torchx_specs.workspace",
    "torchx_specs",
    names={
        "PkgInfo": "torchx._legacy_workspace",
        "WorkspaceBuilder": "torchx._legacy_workspace",
        "PackageType": "torchx._legacy_workspace",
        "WorkspaceConfigType": "torchx._legacy_workspace",
    },
)
