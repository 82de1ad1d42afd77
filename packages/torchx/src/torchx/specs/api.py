"""Older path of the data model."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs",
    "torchx_specs.run_options",
    "torchx_specs.status",
    "torchx_specs.mounts",
    "torchx_specs.role_overrides",
    names={
        "_null_resource": "torchx._legacy_specs",
        "to_dict": "torchx_specs.arguments.types",
        "get_type_name": "torchx_specs.typenames",
        "T": "torchx_specs.dryrun",
        "YELLOW_BOLD": "torchx._legacy_specs",
        "RESET": "torchx._legacy_specs",
    },
)
