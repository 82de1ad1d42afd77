"""Names of ``torchx_specs.workspace``, and three more names of upstream's ``torchx.workspace``."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.workspace",
    names={
        "MultiWorkspaceMixin": "torchx._legacy_workspace",
        "pin_workspace_images": "torchx_runner.workspaces",
        "walk_workspace": "torchx_kit.workspace",
    },
    exported=(
        "MultiWorkspaceMixin",
        "WorkspaceMixin",
        "pin_workspace_images",
        "walk_workspace",
    ),
)
