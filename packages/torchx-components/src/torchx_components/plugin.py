"""Registers the built-in components under their plain names, such as ``dist.ddp``."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_specs.hookspecs import ComponentPlugin, hookimpl


@hookimpl
def torchx_components() -> Iterator[ComponentPlugin]:
    """Yield the record of this package."""
    yield ComponentPlugin(group="", module="torchx_components", builtin=True)
