"""Registers ``torchx dashboard`` by the hook ``torchx_commands``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import CommandPlugin, hookimpl


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield the command ``dashboard``."""
    yield CommandPlugin(
        "dashboard",
        "torchx_dashboard.command:command",
        "Show jobs, logs, runs and sweeps in the browser.",
    )
