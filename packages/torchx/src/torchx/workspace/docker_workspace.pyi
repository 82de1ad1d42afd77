# Type stub: the names of the module beside it.
from torchx_kit.workspace.ignore import TORCHX_DOCKERFILE as TORCHX_DOCKERFILE
from torchx_kit.workspace.walk import walk_workspace as walk_workspace
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.app import Role as Role
from torchx_specs.options.run_options import runopts as runopts
from torchx_specs.workspace.api import WorkspaceMixin as WorkspaceMixin
from torchx_workspace_docker.docker_workspace import DockerWorkspaceMixin as DockerWorkspaceMixin
from torchx_workspace_docker.docker_workspace import print_push_events as print_push_events
from torchx_workspace_docker.engine.build import DEFAULT_DOCKERFILE as DEFAULT_DOCKERFILE
