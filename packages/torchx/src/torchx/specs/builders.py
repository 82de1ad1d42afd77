"""Older path of what turns arguments into an AppDef."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.arguments",
    "torchx_specs.arguments.types",
    "torchx_specs.mounts",
    "torchx_specs",
    names={
        "make_app_handle": "torchx_specs.handles",
        "get_fn_docstring": "torchx_specs.file_linter",
        "TorchXArgumentHelpFormatter": "torchx_specs.file_linter",
        "_create_args_parser": "torchx._argparse",
        "parse_args": "torchx._argparse",
        "_MOUNT_OPT_MAP": "torchx_specs.mounts:_CANONICAL",
    },
)
