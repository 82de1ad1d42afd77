"""Says whether text on a terminal can be replaced, and which lines of it are replaced now."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from torchx_cli.output.colors import is_terminal


def can_replace_text(stream: TextIO) -> bool:
    """Return True if a stream is a terminal, and ``$TERM`` is set and not ``dumb``."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Return the columns and rows of a terminal: at least 20 and 4, and 80 and 24 if unknown."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    # A terminal whose size was never set reports 0 columns and 0 rows.
    return max(size.columns, 20) if size.columns else 80, max(size.lines, 4) if size.lines else 24


#: Each makes a context without the region that is on a terminal now; the newest region comes last.
hiders: list[Callable[[], AbstractContextManager[None]]] = []


def hidden_region(stream: object) -> AbstractContextManager[None]:
    """Return a context for writing to a stream; if it is a terminal, no region is on it meanwhile.

    Args:
        stream: The stream.
    """
    return hiders[-1]() if hiders and is_terminal(stream) else nullcontext()
