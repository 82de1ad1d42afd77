"""Terminal colour codes; the constants are empty if standard output does not show colours."""

from __future__ import annotations

import os
import sys

_CODES = {
    "GREEN": "\033[32m",
    "RED": "\033[31m",
    "BLUE": "\033[34m",
    "ORANGE": "\033[38;5;208m",
    "GRAY": "\033[2m",
    "ENDC": "\033[0m",
}


def is_terminal(stream: object) -> bool:
    """Return True if ``stream`` is an open terminal."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def takes_color(stream: object) -> bool:
    """Return True if ``stream`` is a terminal that is not dumb, without ``$NO_COLOR``.

    An empty ``$NO_COLOR`` counts as not set.
    """
    if os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR"):
        return False
    return is_terminal(stream)


def paint(text: str, color: str, stream: object) -> str:
    """Return ``text`` in a colour if ``stream`` shows colours, else unchanged.

    Args:
        text: The text.
        color: The name of a colour in this module, such as ``GREEN``.
        stream: The stream that the text is for.
    """
    return f"{_CODES[color]}{text}{_CODES['ENDC']}" if takes_color(stream) else text


_on_terminal = takes_color(sys.stdout)

GREEN: str = _CODES["GREEN"] if _on_terminal else ""
BLUE: str = _CODES["BLUE"] if _on_terminal else ""
ORANGE: str = _CODES["ORANGE"] if _on_terminal else ""
GRAY: str = _CODES["GRAY"] if _on_terminal else ""
ENDC: str = _CODES["ENDC"] if _on_terminal else ""
