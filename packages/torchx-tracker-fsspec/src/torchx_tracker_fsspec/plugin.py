"""Registers the tracker ``fsspec``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import TrackerPlugin


@hookimpl
def torchx_trackers() -> Iterable[TrackerPlugin]:
    """Yield the tracker."""
    yield TrackerPlugin(
        "fsspec",
        "torchx_tracker_fsspec.tracker:create",
        "Files on a local disk or any fsspec file system.",
    )
