"""Adds options and traceback to an event; used only if a handler receives the event."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.redaction import MASK, is_secret, masked, masked_text

if TYPE_CHECKING:
    from torchx_runner.events.api import TorchxEvent


def add_details(
    event: TorchxEvent, cfg: str | Mapping[str, Any] | None, error: BaseException | None
) -> None:
    """Add the options and the traceback to an event, with secrets masked.

    Args:
        event: The event; changed in place.
        cfg: The scheduler's options, as a mapping or as JSON text.
        error: The exception that ended the call, if any.
    """
    options = _as_mapping(cfg)
    if options is not None:
        event.runcfg = json.dumps(masked(options), default=str)
    if error is None:
        return
    raw = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        last = frames[-1]
        event.exception_source_location = json.dumps(
            {"filename": last.filename, "lineno": last.lineno, "name": last.name}
        )
    # An error message about an option often contains the option's value.
    secrets = sorted(set(_secrets(options or {})), key=len, reverse=True)
    event.raw_exception = _without(raw, secrets)
    event.exception_message = _without(event.exception_message or "", secrets)


def _as_mapping(cfg: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if not isinstance(cfg, str):
        return cfg
    try:
        given = json.loads(cfg)
    except ValueError:
        return None  # not JSON: event.runcfg keeps the given text
    return given if isinstance(given, dict) else None


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif is_secret(str(key)):
            for item in value if isinstance(value, (list, tuple)) else [value]:
                # A short value is not masked: masking every "1" would make the text unreadable.
                if len(str(item)) >= 4:
                    yield str(item)


def _without(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return masked_text(text)
