"""Formats numbers of bytes as text."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def format_bytes(size: int | None) -> str:
    """Return a number of bytes with a unit, in powers of 1000; "unknown" for None.

    >>> format_bytes(999), format_bytes(1_234_567)
    ('999 B', '1.2 MB')
    """
    if size is None:
        return "unknown"
    if size < 1000:
        return f"{size} B"
    value, power = size / 1000, 1
    while value >= 999.95 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.1f} {_UNITS[power]}"
