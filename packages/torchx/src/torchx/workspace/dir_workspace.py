"""Import path of the ``dir`` workspace in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_kit.workspace.dir_builder",
    names={
        "WorkspaceMixin": "torchx_specs.workspace",
        "walk_workspace": "torchx_kit.workspace.walk",
        "Role": "torchx_specs",
    },
)
