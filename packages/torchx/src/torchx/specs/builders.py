"""Older path of what turns arguments into an AppDef."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._argparse import _create_args_parser as _create_args_parser
    from torchx._argparse import parse_args as parse_args
    from torchx_specs.arguments import *
    from torchx_specs.file_linter import TorchXArgumentHelpFormatter as TorchXArgumentHelpFormatter
    from torchx_specs.file_linter import get_fn_docstring as get_fn_docstring
    from torchx_specs.handles import make_app_handle as make_app_handle
    from torchx_specs.mounts import _CANONICAL as _MOUNT_OPT_MAP

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
