"""Workspaces: the local directories a job takes along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs._lazy import attach

if TYPE_CHECKING:
    from torchx_specs.workspace.api import MultiWorkspaceMixin as MultiWorkspaceMixin
    from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
    from torchx_specs.workspace.api import pin_workspace_images as pin_workspace_images
    from torchx_specs.workspace.builder import BuilderWorkspaceMixin as BuilderWorkspaceMixin
    from torchx_specs.workspace.builder import Built as Built
    from torchx_specs.workspace.builder import BuiltReference as BuiltReference
    from torchx_specs.workspace.builder import WorkspaceBuilder as WorkspaceBuilder
    from torchx_specs.workspace.digests import FileDigests as FileDigests
    from torchx_specs.workspace.dir import copy_workspace as copy_workspace
    from torchx_specs.workspace.spec import Workspace as Workspace
    from torchx_specs.workspace.tree import WorkspaceFile as WorkspaceFile
    from torchx_specs.workspace.tree import tree_digest as tree_digest
    from torchx_specs.workspace.tree import workspace_files as workspace_files
    from torchx_specs.workspace.walk import walk_workspace as walk_workspace

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_specs.workspace.api": (
            "MultiWorkspaceMixin",
            "WorkspaceMixin",
            "pin_workspace_images",
        ),
        "torchx_specs.workspace.builder": (
            "BuilderWorkspaceMixin",
            "Built",
            "BuiltReference",
            "WorkspaceBuilder",
        ),
        "torchx_specs.workspace.digests": ("FileDigests",),
        "torchx_specs.workspace.dir": ("copy_workspace",),
        "torchx_specs.workspace.spec": ("Workspace",),
        "torchx_specs.workspace.tree": ("WorkspaceFile", "tree_digest", "workspace_files"),
        "torchx_specs.workspace.walk": ("walk_workspace",),
    },
    submodules=("api", "builder", "digests", "dir", "ignore", "spec", "tree", "walk"),
)
