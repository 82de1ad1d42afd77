"""Older path of the log streaming helpers."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_cli.logs.log_lines",
    names={
        "none_throws": "torchx_specs.components.types",
        "_find_role_replicas": "torchx_cli.logs.log_lines:find_role_replicas",
    },
)
