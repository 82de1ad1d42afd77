# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx.workspace import api as api
from torchx.workspace import dir_workspace as dir_workspace
from torchx.workspace import docker_workspace as docker_workspace
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
