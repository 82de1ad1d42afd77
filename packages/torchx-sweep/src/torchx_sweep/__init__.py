"""Runs a component with many sets of parameters, without a server.

>>> from torchx_runner import get_runner
>>> from torchx_sweep import sweep, wait
>>> with get_runner() as runner:  # doctest: +SKIP
...     handle = sweep(runner, "utils.echo", scheduler="local_cwd", grid={"msg": ["a", "b"]})
>>> wait(handle).counts  # doctest: +SKIP
{<ElementState.SUCCEEDED: 'SUCCEEDED'>: 2}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_sweep.api import SweepPlan as SweepPlan
    from torchx_sweep.api import SweepStatus as SweepStatus
    from torchx_sweep.api import SweepTimeoutError as SweepTimeoutError
    from torchx_sweep.api import cancel as cancel
    from torchx_sweep.api import delete as delete
    from torchx_sweep.api import log_lines as log_lines
    from torchx_sweep.api import metrics as metrics
    from torchx_sweep.api import plan as plan
    from torchx_sweep.api import rerun as rerun
    from torchx_sweep.api import results as results
    from torchx_sweep.api import status as status
    from torchx_sweep.api import statuses as statuses
    from torchx_sweep.api import submit as submit
    from torchx_sweep.api import sweep as sweep
    from torchx_sweep.api import wait as wait
    from torchx_sweep.store import ElementRecord as ElementRecord
    from torchx_sweep.store import ElementState as ElementState

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_sweep.api": (
            "SweepPlan",
            "SweepStatus",
            "SweepTimeoutError",
            "cancel",
            "delete",
            "log_lines",
            "metrics",
            "plan",
            "rerun",
            "results",
            "status",
            "statuses",
            "submit",
            "sweep",
            "wait",
        ),
        "torchx_sweep.store": ("ElementRecord", "ElementState"),
    },
    submodules=("api",),
)
