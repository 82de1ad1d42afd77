"""Names that this module had in older TorchX releases, such as materialize_appdef."""

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.components.materialize",
    "torchx.util.types",
    "torchx_specs.model.mounts",
    "torchx_specs",
    names={
        "make_app_handle": "torchx_specs.model.handles",
        "get_fn_docstring": "torchx_specs.file_linter",
        "TorchXArgumentHelpFormatter": "torchx._legacy_linter",
        "_create_args_parser": "torchx._argparse",
        "materialize_appdef": "torchx._argparse",
        "parse_args": "torchx._argparse",
        "component_args_from_str": "torchx._argparse",
        "_MOUNT_OPT_MAP": "torchx_specs.model.mounts:_CANONICAL",
    },
)
