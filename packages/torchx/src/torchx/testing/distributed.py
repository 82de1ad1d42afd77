"""Older path of the distributed test case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward, install_hint

if TYPE_CHECKING:
    from torchx_testing.distributed import *

forward(
    __name__,
    "torchx_testing.distributed",
    missing=install_hint("testing", "torchx-testing"),
)
