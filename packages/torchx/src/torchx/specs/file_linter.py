"""Older path of the component linter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx.util.io import read_conf_file as read_conf_file
    from torchx_specs.arguments.types import none_throws as none_throws
    from torchx_specs.file_linter import *

forward(
    __name__,
    "torchx_specs.file_linter",
    "torchx._legacy_linter",
    names={
        "none_throws": "torchx_specs.arguments.types",
        "read_conf_file": "torchx.util.io",
    },
)
