"""Terminal colour codes; empty strings where standard output is no terminal."""

from __future__ import annotations

import os
import sys

_CODES = {
    "GREEN": "\033[32m",
    "BLUE": "\033[34m",
    "ORANGE": "\033[38;5;208m",
    "GRAY": "\033[2m",
    "ENDC": "\033[0m",
}


def is_terminal(stream: object) -> bool:
    """Returns True if ``stream`` is a terminal; a closed or odd one is none."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def takes_color(stream: object) -> bool:
    """Returns True if ``stream`` is a terminal, and ``$NO_COLOR`` does not forbid colours."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, color: str, stream: object) -> str:
    """Returns ``text`` in a colour if ``stream`` takes colours, else as it is.

    Args:
        text: what to paint
        color: a name of this module (``GREEN``)
        stream: where it will be written
    """
    return f"{_CODES[color]}{text}{_CODES['ENDC']}" if takes_color(stream) else text


_on_terminal = takes_color(sys.stdout)

GREEN: str = _CODES["GREEN"] if _on_terminal else ""
BLUE: str = _CODES["BLUE"] if _on_terminal else ""
ORANGE: str = _CODES["ORANGE"] if _on_terminal else ""
GRAY: str = _CODES["GRAY"] if _on_terminal else ""
ENDC: str = _CODES["ENDC"] if _on_terminal else ""
