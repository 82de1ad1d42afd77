"""Older path of the random ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx_specs.schedulers.ids import *
    from torchx_specs.schedulers.ids import random_id as get_len_random_id

forward(
    __name__,
    "torchx_specs.schedulers.ids",
    names={
        "get_len_random_id": "torchx_specs.schedulers.ids:random_id",
    },
)
