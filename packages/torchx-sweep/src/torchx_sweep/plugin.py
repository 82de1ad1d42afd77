"""Registers ``torchx sweep`` by the hook ``torchx_commands``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CommandPlugin


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield the command ``sweep``."""
    yield CommandPlugin(
        "sweep",
        "torchx_sweep.command:command",
        "Run a script with many sets of parameters, and manage such sweeps.",
    )
