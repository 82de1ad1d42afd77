"""Parses and writes durations and times: ``10m``, ``12 min 3 s``, ``2026-11-21T10:00:00``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

import click

from torchx_kit.times import parse_duration as parse_duration

F = TypeVar("F", bound=Callable[..., Any])

_FRACTION = re.compile(r"(?<=:\d\d)\.\d+")


def parse_when(text: str, now: datetime | None = None) -> datetime:
    """Return a point in time, as local time without a time zone.

    Args:
        text: ISO 8601 (local time unless it has a time zone), or a duration before ``now``.
        now: The reference for durations; None means the present.

    Raises:
        ValueError: The text is neither a time nor a duration.
    """
    word = text.strip()
    try:
        return (now or datetime.now()) - timedelta(seconds=parse_duration(word))
    except (ValueError, OverflowError):
        pass
    try:
        # Python 3.10 accepts neither the time zone Z nor a fraction of any length (RFC 3339).
        exact = _FRACTION.sub(lambda found: f"{found[0][:7]:0<7}", re.sub("[zZ]$", "+00:00", word))
        when = datetime.fromisoformat(exact)
        return when.astimezone().replace(tzinfo=None) if when.tzinfo else when
    except (ValueError, OverflowError):
        raise ValueError(
            f"'{text}' is not a time; write 10m (ago), 2026-11-21 or 2026-11-21T10:00:00"
        ) from None


def format_duration(seconds: float) -> str:
    """Return a duration with its two largest units.

    >>> [format_duration(s) for s in (0.2, 59.6, 723, 7200, 90000)]
    ['0 s', '59 s', '12 min 3 s', '2 h', '1 d 1 h']
    """
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def format_time(when: datetime) -> str:
    """Return a time as local time without fractions of a second: ``2026-11-21 10:00:00``."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def rfc3339(when: datetime | None) -> str | None:
    """Return a time for JSON, in UTC: ``2026-11-21T10:00:00Z``; None stays None."""
    if when is None:
        return None
    text = when.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace(".000+", "+").replace("+00:00", "Z")


def _converter(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return the type of an option; values that are not text are already converted."""

    def convert(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except ValueError as e:
            raise click.BadParameter(str(e)) from None

    return convert


def duration_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds a duration option; the command receives seconds, or None."""
    return click.option(*names, type=_converter(parse_duration), metavar="TIME", **settings)


def when_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds a time option; the command receives a datetime, or None."""
    return click.option(*names, type=_converter(parse_when), metavar="TIME", **settings)
