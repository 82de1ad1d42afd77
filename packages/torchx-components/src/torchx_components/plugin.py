"""Registers the components of this package, under their plain names (``dist.ddp``)."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_specs.hookspecs import ComponentPlugin, hookimpl


@hookimpl
def torchx_components() -> Iterator[ComponentPlugin]:
    yield ComponentPlugin(group="", module="torchx_components", builtin=True)
