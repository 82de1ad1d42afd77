"""Registers the command ``torchx conformance``."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import CommandPlugin


@hookimpl
def torchx_commands() -> Iterator[CommandPlugin]:
    """Yield the command."""
    yield CommandPlugin(
        "conformance",
        "torchx_testing.site.command:command",
        summary="Test a scheduler on your site.",
    )
