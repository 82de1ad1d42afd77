# Type stub: the names of the module beside it.
from torchx._legacy_workspace import MultiWorkspaceMixin as MultiWorkspaceMixin
from torchx.workspace import api as api
from torchx.workspace import dir_workspace as dir_workspace
from torchx.workspace import docker_workspace as docker_workspace
from torchx_kit.workspace.walk import walk_workspace as walk_workspace
from torchx_runner.workspaces import pin_workspace_images as pin_workspace_images
from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
from torchx_specs.workspace.spec import Workspace as Workspace
