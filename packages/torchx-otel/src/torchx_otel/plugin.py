"""Registers the event handler ``otel``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import EventHandlerPlugin


@hookimpl
def torchx_event_handlers() -> Iterable[EventHandlerPlugin]:
    """Yield the event handler."""
    yield EventHandlerPlugin(
        "otel", "torchx_otel.handler:SpanHandler", "OpenTelemetry spans of the runner's calls."
    )
