"""Names of the environment variables that launcher and job share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.settings import *

forward(
    __name__,
    "torchx_specs.settings",
)
