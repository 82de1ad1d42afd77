"""Runs components and apps on schedulers, and queries, cancels and deletes them.

>>> from torchx_runner import Runner
>>> with Runner("docs", scheduler_factories={}) as runner:
...     runner.scheduler_backends()
[]

Importing this package is cheap: each public name loads its module on first use.
"""

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_runner.api import Runner as Runner
    from torchx_runner.api import get_configured_trackers as get_configured_trackers
    from torchx_runner.api import get_runner as get_runner
    from torchx_runner.async_runner.api import AsyncRunner as AsyncRunner
    from torchx_runner.wait_for_state import WaitTimeoutError as WaitTimeoutError

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_runner.api": ("Runner", "get_configured_trackers", "get_runner"),
        "torchx_runner.async_runner.api": ("AsyncRunner",),
        "torchx_runner.wait_for_state": ("WaitTimeoutError",),
    },
    submodules=("api", "components", "config", "events", "session"),
)
