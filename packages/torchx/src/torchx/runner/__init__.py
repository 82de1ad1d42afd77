"""The Runner: the same object as ``torchx_runner``'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_runner.api import *
    from torchx_runner.api import Runner as Runner
    from torchx_runner.api import get_runner as get_runner

forward(
    __name__,
    "torchx_runner.api",
    names={
        "Runner": "torchx_runner.api",
        "get_runner": "torchx_runner.api",
    },
    exported=(
        "Runner",
        "get_runner",
    ),
)
