"""Shows text on a terminal in place of the text that was shown before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TextIO

from torchx_cli.output.colors import is_terminal
from torchx_cli.output.terminal_safety import escape_controls, safe_message, write_safe


def can_replace_text(stream: TextIO) -> bool:
    """Return True if a stream is a terminal, and ``$TERM`` is set and not ``dumb``."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") != "dumb"


class InPlaceText:
    """Text on a terminal that each call of :meth:`show` replaces.

    Args:
        stream: The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines = 0

    def show(self, text: str) -> None:
        """Replace the text. Long lines are cut off, and a count replaces lines below the screen.

        Args:
            text: The new text.
        """
        columns, rows = terminal_size(self._stream)
        lines = [safe_message(escape_controls(line)[: columns - 1]) for line in text.splitlines()]
        if len(lines) > rows - 1:
            hidden = len(lines) - (rows - 2)
            lines = [*lines[: rows - 2], f"... {hidden} more lines"[: columns - 1]]
        back = f"\033[{self._lines}F" if self._lines else ""
        body = "".join(f"{line}\033[K\n" for line in lines)
        write_safe(self._stream, f"{back}{body}\033[J")
        self._stream.flush()
        self._lines = len(lines)


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Return the columns and rows of a terminal: at least 20 and 4, and 80 and 24 if unknown."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    # A terminal whose size was never set reports 0 columns and 0 rows.
    return max(size.columns, 20) if size.columns else 80, max(size.lines, 4) if size.lines else 24


# The context without a region that the owner of the present region provides.
_hidden: Callable[[], AbstractContextManager[None]] | None = None


@contextmanager
def region_owner(hidden: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Make ``hidden`` the context of :func:`hidden_region`, until the end of this context."""
    global _hidden
    before, _hidden = _hidden, hidden
    try:
        yield
    finally:
        _hidden = before


def hidden_region(stream: object) -> AbstractContextManager[None]:
    """Return a context for writing to a stream; if it is a terminal, no region is on it meanwhile.

    Args:
        stream: The stream.
    """
    return nullcontext() if _hidden is None or not is_terminal(stream) else _hidden()
