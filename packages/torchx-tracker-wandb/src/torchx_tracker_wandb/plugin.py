"""Registers the tracker ``wandb``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import TrackerPlugin


@hookimpl
def torchx_trackers() -> Iterable[TrackerPlugin]:
    """Yield the tracker."""
    yield TrackerPlugin(
        "wandb",
        "torchx_tracker_wandb.tracker:create_tracker",
        "Runs, config values and artifact references of Weights & Biases.",
    )
