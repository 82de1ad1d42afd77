"""Import path of the component linter in older TorchX releases."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.file_linter",
    "torchx._legacy_linter",
    names={
        "none_throws": "torchx.util.types",
        "read_conf_file": "torchx.util.io",
    },
)
