"""Import path of ``Workspace`` and ``WorkspaceMixin`` in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.workspace.api",
    "torchx_kit.workspace.walk",
    "torchx_specs.workspace",
    "torchx_specs",
    names={
        "MultiWorkspaceMixin": "torchx._legacy_workspace",
        "pin_workspace_images": "torchx_runner.workspaces",
        "PkgInfo": "torchx._legacy_workspace",
        "WorkspaceBuilder": "torchx._legacy_workspace",
        "PackageType": "torchx._legacy_workspace",
        "WorkspaceConfigType": "torchx._legacy_workspace",
    },
)
