"""Older path of the component finder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx.util.io import read_conf_file as read_conf_file
    from torchx_runner.finder import *
    from torchx_specs import AppDef as AppDef
    from torchx_specs import ComponentNotFoundException as ComponentNotFoundException
    from torchx_specs import ComponentValidationException as ComponentValidationException
    from torchx_specs.arguments.types import none_throws as none_throws
    from torchx_specs.file_linter import ComponentFunctionValidator as ComponentFunctionValidator
    from torchx_specs.file_linter import get_fn_docstring as get_fn_docstring
    from torchx_specs.file_linter import validate as validate

forward(
    __name__,
    "torchx_runner.finder",
    names={
        "none_throws": "torchx_specs.arguments.types",
        "AppDef": "torchx_specs",
        "ComponentNotFoundException": "torchx_specs",
        "ComponentValidationException": "torchx_specs",
        "validate": "torchx_specs.file_linter",
        "get_fn_docstring": "torchx_specs.file_linter",
        "ComponentFunctionValidator": "torchx_specs.file_linter",
        "read_conf_file": "torchx.util.io",
    },
)
