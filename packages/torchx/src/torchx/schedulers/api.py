"""Import path of the base class of schedulers in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.schedulers.api",
    "torchx_specs",
    "torchx_kit.logs.lines",
    names={
        "WorkspaceMixin": "torchx_specs.workspace",
        "_is_structured_opts": "torchx_specs.options.structured:is_structured_opts",
        "_unwrap_optional": "torchx_specs.options.structured",
    },
)
