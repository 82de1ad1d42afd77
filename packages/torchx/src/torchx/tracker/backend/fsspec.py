"""Older path of the fsspec tracker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_tracker_fsspec import *

forward(
    __name__,
    "torchx_tracker_fsspec",
    "torchx_specs.trackers.api",
    names={"generate_filename": "torchx._legacy_tracker"},
)
