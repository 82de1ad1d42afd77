# Type stub: the names of the module beside it.
from torchx_kit.workspace.dir_builder import DirWorkspaceMixin as DirWorkspaceMixin
from torchx_kit.workspace.dir_builder import TmpDirWorkspaceMixin as TmpDirWorkspaceMixin
from torchx_kit.workspace.walk import walk_workspace as walk_workspace
from torchx_specs.model.app import Role as Role
from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
