"""The interface of schedulers."""

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.schedulers.api import DescribeAppResponse as DescribeAppResponse
    from torchx_specs.schedulers.api import GpuCounts as GpuCounts
    from torchx_specs.schedulers.api import ListAppResponse as ListAppResponse
    from torchx_specs.schedulers.api import Scheduler as Scheduler
    from torchx_specs.schedulers.log_items import Stream as Stream

__getattr__, __dir__, __all__ = attach(
    __name__,
    {".api": "DescribeAppResponse GpuCounts ListAppResponse Scheduler", ".log_items": "Stream"},
    submodules="api",
)
