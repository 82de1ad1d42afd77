"""Times on the command line: ``10m``, ``2026-11-21T10:00:00``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw]?)")


def parse_duration(text: str) -> float:
    """Returns a duration in seconds.

    >>> parse_duration("90"), parse_duration("1h30m")
    (90.0, 5400.0)

    Raises:
        ValueError: it is none
    """
    seconds = 0.0
    position = 0
    word = text.strip().lower()
    while position < len(word):
        part = _PART.match(word, position)
        if part is None or (not part[2] and part[0] != word):
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not word or position < len(word):
        raise ValueError(f"'{text}' is no duration; write 90, 90s, 10m, 2h, 1d or 1h30m")
    return seconds


def parse_when(text: str, now: datetime | None = None) -> datetime:
    """Returns a point in time, as local time without a zone.

    Args:
        text: ISO 8601 (local time unless it has a zone), or how long ago: ``10m``
        now: what ``ago`` counts from

    Raises:
        ValueError: it is neither
    """
    word = text.strip()
    try:
        return (now or datetime.now()) - timedelta(seconds=parse_duration(word))
    except (ValueError, OverflowError):
        pass
    try:
        # Python 3.10 does not know that Z is a zone
        when = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", word))
        return when.astimezone().replace(tzinfo=None) if when.tzinfo else when
    except (ValueError, OverflowError):
        raise ValueError(
            f"'{text}' is no time; write 10m (ago), 2026-11-21 or 2026-11-21T10:00:00"
        ) from None


class _Converted(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    def __init__(self, name: str, convert: Callable[[str], Any]) -> None:
        self.name = name
        self._convert = convert

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._convert(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)


def duration_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option that holds a duration; the command gets seconds, or None."""
    return click.option(
        *names, type=_Converted("duration", parse_duration), metavar="TIME", **settings
    )


def when_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option that holds a point in time; the command gets a datetime, or None."""
    return click.option(*names, type=_Converted("time", parse_when), metavar="TIME", **settings)
