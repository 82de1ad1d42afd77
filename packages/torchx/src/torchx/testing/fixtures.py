"""Older path of the test fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward, install_hint

if TYPE_CHECKING:
    from torchx_testing.fixtures import *

forward(
    __name__,
    "torchx_testing.fixtures",
    missing=install_hint("testing", "torchx-testing"),
)
