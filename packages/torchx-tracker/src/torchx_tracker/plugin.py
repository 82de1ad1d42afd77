"""Registers the command ``torchx tracker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CommandPlugin


@hookimpl
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield the command."""
    yield CommandPlugin(
        "tracker",
        "torchx_tracker.command:command",
        "Show the records of trackers.",
    )
