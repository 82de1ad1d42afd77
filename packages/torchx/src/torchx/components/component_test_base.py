"""Base of tests of components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._argparse import _create_args_parser as _create_args_parser
    from torchx_components.component_test_base import *
    from torchx_runner.api import get_runner as get_runner
    from torchx_runner.finder import get_component as get_component

forward(
    __name__,
    "torchx_components.component_test_base",
    "torchx_specs",
    names={
        "get_component": "torchx_runner.finder",
        "get_runner": "torchx_runner.api",
        "_create_args_parser": "torchx._argparse",
    },
)
