"""Experiment tracking from inside a job: record the run's metadata, artifacts and sources.

::

    from torchx_tracker import app_run_from_env

    run = app_run_from_env()
    run.add_metadata(learning_rate=0.1)
    run.add_artifact("model", "s3://bucket/model.pt", {"epoch": 3})

The launcher chooses the trackers and passes them in the job's environment. Without trackers, these
calls do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_tracker.api import AppRun as AppRun
    from torchx_tracker.api import AppRunTrackableSource as AppRunTrackableSource
    from torchx_tracker.api import app_run_from_env as app_run_from_env

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"torchx_tracker.api": ("AppRun", "AppRunTrackableSource", "app_run_from_env")},
    submodules=("api",),
)
