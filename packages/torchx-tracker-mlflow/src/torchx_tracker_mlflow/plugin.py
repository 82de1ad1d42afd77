"""Registers the tracker ``mlflow``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import TrackerPlugin


@hookimpl
def torchx_trackers() -> Iterable[TrackerPlugin]:
    """Yield the tracker."""
    yield TrackerPlugin(
        "mlflow",
        "torchx_tracker_mlflow.tracker:create_tracker",
        "Runs, tags and artifacts of an MLflow tracking server.",
    )
