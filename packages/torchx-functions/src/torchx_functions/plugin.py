"""Registers the pruner of functions by the hook ``torchx_pruners``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import PrunerPlugin, hookimpl


@hookimpl
def torchx_pruners() -> Iterable[PrunerPlugin]:
    """Yield the pruner that deletes the functions and results of ended jobs."""
    yield PrunerPlugin(
        "functions",
        "torchx_functions.pruning:unused_functions",
        summary="Functions and results of jobs that have ended",
    )
