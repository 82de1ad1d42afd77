"""Conversion of times: datetimes, seconds and nanoseconds since 1970, RFC 3339; durations."""

from __future__ import annotations

import functools
import math
import re
from datetime import datetime, timedelta, timezone

from torchx_specs.errors import RequestError

NANOSECONDS = 1_000_000_000

_days: dict[bytes, int] = {}
_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw]?)")
# Slurm's form: days-hours, days-hours:minutes, days-hours:minutes:seconds.
_DAYS = r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?"


def to_nanoseconds(when: datetime) -> int:
    """Return a time in nanoseconds since 1970, exactly; a time without a zone is local time."""
    past = when.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return past // timedelta(microseconds=1) * 1000


def moment(seconds: float | None) -> datetime | None:
    """Return a time as a datetime in UTC; None if it is None, not positive, or too large.

    Args:
        seconds: The time, in seconds since 1970.
    """
    try:
        return datetime.fromtimestamp(seconds, timezone.utc) if seconds and seconds > 0 else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def datetime_of(stamp: object) -> datetime | None:
    """Return an RFC 3339 time as a datetime in UTC, or None if the value is no such time.

    A time before 1970 also gives None: Docker writes the year 1 for an event that has not happened.

    >>> datetime_of("2026-01-02T03:04:05.123456789Z")
    datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=datetime.timezone.utc)
    >>> datetime_of("0001-01-01T00:00:00Z") is datetime_of("") is None
    True

    Args:
        stamp: The text of the time, or another value of a service's answer, such as None.
    """
    try:
        microseconds = parse_rfc3339(str(stamp).encode()) // 1000
    except (ValueError, IndexError):
        return None
    if microseconds <= 0:
        return None
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=microseconds)


def parse_rfc3339(stamp: bytes) -> int:
    """Return an RFC 3339 time in nanoseconds since 1970.

    Docker and Kubernetes put such a time before each log line. For speed, each date is parsed only
    once, and cached.

    >>> parse_rfc3339(b"1970-01-02T00:00:01.000000005Z")
    86401000000005
    >>> parse_rfc3339(b"1970-01-01T01:00:00+01:00")
    0

    Raises:
        ValueError: The text is not an RFC 3339 time.
    """
    day = _days.get(stamp[:10])
    if day is None:
        import calendar

        year, month, number = stamp[:10].split(b"-")
        day = calendar.timegm((int(year), int(month), int(number), 0, 0, 0))
        _days[stamp[:10]] = day
    clock = stamp[11:]
    offset = 0
    if not clock.endswith(b"Z"):
        sign = 1 if b"+" in clock else -1
        clock, _, zone = clock.partition(b"+" if sign > 0 else b"-")
        hours, _, minutes = zone.partition(b":")
        offset = sign * (int(hours) * 3600 + int(minutes or 0) * 60)
    whole, _, fraction = clock.rstrip(b"Z").partition(b".")
    hours, minutes, seconds = whole.split(b":")
    total = day + int(hours) * 3600 + int(minutes) * 60 + int(seconds) - offset
    return total * NANOSECONDS + int(fraction.ljust(9, b"0")[:9] or b"0")


def parse_duration(text: str) -> float:
    """Return a duration in seconds.

    >>> parse_duration("90"), parse_duration("1h30m")
    (90.0, 5400.0)

    Raises:
        ValueError: The text is not a duration.
    """
    seconds = 0.0
    position = 0
    rest = text.strip().lower()
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or (not part[2] and part[0] != rest):
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if not rest or position < len(rest):
        raise ValueError(f"'{text}' is not a duration; write 90, 90s, 10m, 2h, 1d or 1h30m")
    return seconds


def parse_limit(text: str) -> float | None:
    """Return a time limit in seconds; None if the text has no unit, and so depends on a scheduler.

    Days, hours and minutes may have Slurm's form.

    >>> parse_limit("90m"), parse_limit("1-00:00"), parse_limit("90"), parse_limit("1:30:00")
    (5400.0, 86400.0, None, None)
    """
    days = re.fullmatch(_DAYS, text.strip())
    if days:
        sizes = zip(days.groups("0"), (86400, 3600, 60, 1), strict=True)
        seconds = float(sum(int(number) * size for number, size in sizes))
    else:
        try:
            seconds = parse_duration(text)
        except ValueError:
            return None
    return seconds if seconds > 0 and re.search("[a-z-]", text.lower()) else None


def native_limit(text: str, native: re.Pattern[str], unit: int) -> str | None:
    r"""Return a time limit in a scheduler's own form; None if the text is no time limit.

    A text in this form is returned unchanged. A time with a unit becomes a number, rounded up.

    >>> minutes = re.compile(r"\d+(:\d+)?")
    >>> [native_limit(text, minutes, 60) for text in ("1:30", "90s", "2h", "x")]
    ['1:30', '2', '120', None]

    Args:
        text: The value of the option.
        native: The scheduler's own form.
        unit: What a number without a unit means to the scheduler, in seconds.
    """
    if native.fullmatch(text):
        return text
    seconds = parse_limit(text)
    return None if seconds is None else str(math.ceil(seconds / unit))


def limit_seconds(text: str | None, unit: int) -> int | None:
    """Return a time limit that :func:`native_limit` returned, in seconds; None without a limit.

    >>> limit_seconds("1:30", 60), limit_seconds("1:30:00", 1), limit_seconds("90", 1)
    (5400, 5400, 90)

    Args:
        text: The limit: a number, or numbers of which each is 60 times the next one.
        unit: What a number means to the scheduler, in seconds.
    """
    if not text:
        return None
    numbers = map(int, text.split(":"))
    return functools.reduce(lambda total, number: total * 60 + number, numbers) * unit


def limit_option(name: str, text: str) -> float:
    """Return the value of an option that is a time limit, in seconds.

    Raises:
        RequestError: The value is not a time with a unit.
    """
    seconds = parse_limit(text)
    if seconds is None:
        raise RequestError(
            f"option {name}: '{text}' is not a time limit; write a time with a unit: 90s, 30m, 2h,"
            " 1d or 1-12:00 (days, hours and minutes)"
        )
    return seconds
