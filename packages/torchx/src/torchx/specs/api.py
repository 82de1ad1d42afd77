"""Older path of the data model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._legacy_specs import RESET as RESET
    from torchx._legacy_specs import YELLOW_BOLD as YELLOW_BOLD
    from torchx._legacy_specs import _null_resource as _null_resource
    from torchx_specs import *
    from torchx_specs.arguments.types import to_dict as to_dict
    from torchx_specs.dryrun import T as T
    from torchx_specs.typenames import get_type_name as get_type_name

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
