"""A tracker that records runs on an MLflow tracking server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_tracker_mlflow.tracker import MLflowTracker as MLflowTracker
    from torchx_tracker_mlflow.tracker import create_tracker as create_tracker

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"torchx_tracker_mlflow.tracker": ("MLflowTracker", "create_tracker")},
    submodules=("config", "encoding", "tracker"),
)
