"""The interface of schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
    from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
    from torchx_specs.schedulers.api import Scheduler as Scheduler
    from torchx_specs.schedulers.api import Stream as Stream
    from torchx_specs.schedulers.api import compile_regex as compile_regex
    from torchx_specs.schedulers.api import filter_regex as filter_regex
    from torchx_specs.schedulers.api import split_lines as split_lines
    from torchx_specs.schedulers.api import split_lines_iterator as split_lines_iterator

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_specs.schedulers.api": (
            "DescribeAppResponse",
            "ListAppResponse",
            "Scheduler",
            "Stream",
            "compile_regex",
            "filter_regex",
            "split_lines",
            "split_lines_iterator",
        ),
    },
    submodules=("api",),
)
