# Type stub: the names of the module beside it.
from torchx._legacy_workspace import MultiWorkspaceMixin as MultiWorkspaceMixin
from torchx._legacy_workspace import PackageType as PackageType
from torchx._legacy_workspace import PkgInfo as PkgInfo
from torchx._legacy_workspace import WorkspaceBuilder as WorkspaceBuilder
from torchx._legacy_workspace import WorkspaceConfigType as WorkspaceConfigType
from torchx_kit.workspace.ignore import TORCHX_IGNORE as TORCHX_IGNORE
from torchx_kit.workspace.walk import walk_workspace as walk_workspace
from torchx_runner.workspaces import pin_workspace_images as pin_workspace_images
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import Role as Role
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
from torchx_specs.workspace.spec import Workspace as Workspace
