"""Workspaces: files, digests and builders, for authors of builders and schedulers."""

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_kit.workspace.builder import Built as Built
    from torchx_kit.workspace.builder import BuiltReference as BuiltReference
    from torchx_kit.workspace.builder import WorkspaceBuilder as WorkspaceBuilder
    from torchx_kit.workspace.digests import FileDigests as FileDigests
    from torchx_kit.workspace.dir_builder import copy_workspace as copy_workspace
    from torchx_kit.workspace.mixin import BuilderWorkspaceMixin as BuilderWorkspaceMixin
    from torchx_kit.workspace.tree import WorkspaceFile as WorkspaceFile
    from torchx_kit.workspace.tree import tree_digest as tree_digest
    from torchx_kit.workspace.tree import workspace_files as workspace_files
    from torchx_kit.workspace.walk import walk_workspace as walk_workspace

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_kit.workspace.builder": ("Built", "BuiltReference", "WorkspaceBuilder"),
        "torchx_kit.workspace.digests": ("FileDigests",),
        "torchx_kit.workspace.dir_builder": ("copy_workspace",),
        "torchx_kit.workspace.mixin": ("BuilderWorkspaceMixin",),
        "torchx_kit.workspace.tree": ("WorkspaceFile", "tree_digest", "workspace_files"),
        "torchx_kit.workspace.walk": ("walk_workspace",),
    },
)
