"""Older path of the log streaming helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_cli.log_lines import *
    from torchx_cli.log_lines import find_role_replicas as _find_role_replicas
    from torchx_specs.arguments.types import none_throws as none_throws

forward(
    __name__,
    "torchx_cli.log_lines",
    names={
        "none_throws": "torchx_specs.arguments.types",
        "_find_role_replicas": "torchx_cli.log_lines:find_role_replicas",
    },
)
