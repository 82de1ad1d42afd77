"""Runs Python functions as jobs of any scheduler.

>>> from torchx_functions import submit
>>> job = submit(pow, 2, 10)  # doctest: +SKIP
>>> job.result()  # doctest: +SKIP
1024
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_functions.app import JobParameters as JobParameters
    from torchx_functions.checkpoint import DelayedSubmission as DelayedSubmission
    from torchx_functions.errors import FunctionJobError as FunctionJobError
    from torchx_functions.errors import JobCancelledError as JobCancelledError
    from torchx_functions.errors import NoResultError as NoResultError
    from torchx_functions.errors import PickleError as PickleError
    from torchx_functions.errors import RemoteError as RemoteError
    from torchx_functions.errors import RemoteTraceback as RemoteTraceback
    from torchx_functions.errors import ResultTimeoutError as ResultTimeoutError
    from torchx_functions.errors import UnsafeFolderError as UnsafeFolderError
    from torchx_functions.executor import Executor as Executor
    from torchx_functions.executor import map as map
    from torchx_functions.executor import submit as submit
    from torchx_functions.futures import FutureExecutor as FutureExecutor
    from torchx_functions.futures import JobFuture as JobFuture
    from torchx_functions.group import JobGroup as JobGroup
    from torchx_functions.group import interrupted_jobs as interrupted_jobs
    from torchx_functions.job import Job as Job
    from torchx_functions.job import as_completed as as_completed

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_functions.app": ("JobParameters",),
        "torchx_functions.checkpoint": ("DelayedSubmission",),
        "torchx_functions.errors": (
            "FunctionJobError",
            "JobCancelledError",
            "NoResultError",
            "PickleError",
            "RemoteError",
            "RemoteTraceback",
            "ResultTimeoutError",
            "UnsafeFolderError",
        ),
        "torchx_functions.executor": ("Executor", "map", "submit"),
        "torchx_functions.futures": ("FutureExecutor", "JobFuture"),
        "torchx_functions.group": ("JobGroup", "interrupted_jobs"),
        "torchx_functions.job": ("Job", "as_completed"),
    },
)
