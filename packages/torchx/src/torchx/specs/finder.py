"""Import path of the component finder in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_runner.components.finder",
    names={
        "none_throws": "torchx.util.types",
        "AppDef": "torchx_specs",
        "ComponentNotFoundException": "torchx_specs",
        "ComponentValidationException": "torchx_specs",
        "validate": "torchx_specs.file_linter",
        "get_fn_docstring": "torchx_specs.file_linter",
        "ComponentFunctionValidator": "torchx_specs.file_linter",
        "read_conf_file": "torchx.util.io",
    },
)
