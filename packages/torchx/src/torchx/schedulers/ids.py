"""Older path of the random ids."""

from __future__ import annotations

from torchx._forward import forward

forward(
    __name__,
    "torchx_specs.schedulers.ids",
    names={
        "get_len_random_id": "torchx_specs.schedulers.ids:random_id",
    },
)
