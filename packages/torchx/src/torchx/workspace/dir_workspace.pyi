# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_specs.app import Role as Role
from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
from torchx_specs.workspace.dir import DirWorkspaceMixin as DirWorkspaceMixin
from torchx_specs.workspace.dir import TmpDirWorkspaceMixin as TmpDirWorkspaceMixin
from torchx_specs.workspace.walk import walk_workspace as walk_workspace
