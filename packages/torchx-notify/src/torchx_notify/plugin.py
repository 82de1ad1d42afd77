"""Registers the notifiers ``webhook`` and ``command``, and what sends by all notifiers."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import ALL, NotifierPlugin


@hookimpl
def torchx_notifiers() -> Iterable[NotifierPlugin]:
    """Yield the notifiers."""
    yield NotifierPlugin(
        ALL, "torchx_notify.delivery:Deliveries", "Sends notifications in the background."
    )
    yield NotifierPlugin(
        "webhook", "torchx_notify.webhook:create", "Send JSON to a URL, signed and retried."
    )
    yield NotifierPlugin(
        "command", "torchx_notify.command:create", "Run a program, for mail or the desktop."
    )
