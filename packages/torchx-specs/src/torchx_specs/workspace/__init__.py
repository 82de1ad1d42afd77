"""Workspaces: local directories to upload into a job."""

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
    from torchx_specs.workspace.spec import Workspace as Workspace

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"torchx_specs.workspace.api": "WorkspaceMixin", "torchx_specs.workspace.spec": "Workspace"},
    submodules="api spec",
)
