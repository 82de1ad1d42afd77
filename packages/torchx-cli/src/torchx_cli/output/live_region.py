"""Keeps a few lines at the bottom of a terminal up to date, while other text scrolls above them."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TextIO

from torchx_cli.output.terminal import escape_controls, hiders, terminal_size, write_safe

#: The largest number of lines below logs.
MOST_LINES = 12

# A line may consist of combining characters or colours, which have no width.
_LONGEST_CHARS = 4096
_SEQUENCE = re.compile(r"(\x1b\[[0-9;:]*m)")
# Latin letters, and the characters of which bars consist: blocks, lines, Braille patterns.
_NARROW = re.compile(r"[ -\u02ff\u2500-\u259f\u2800-\u28ff]*\Z")
_SPACES = str.maketrans("\t\n", "  ")
# Without automatic margins, a character that is wider than computed breaks no line in two.
_MARGINS_OFF, _MARGINS_ON = "\033[?7l", "\033[?7h"


class LiveRegion:
    """Lines at the bottom of a terminal, each at most as wide as the terminal; thread-safe.

    The cursor stays visible, below the region. As a context manager, an object of this class is
    removed while a log message is written.

    Args:
        stream: The terminal.
        most: The largest number of lines; a last line counts the others.
    """

    def __init__(self, stream: TextIO, most: int = MOST_LINES) -> None:
        self._stream = stream
        self._most = most
        self._shown: list[str] = []
        self._widths: list[int] = []
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        hiders.append(self.hidden)

    def __exit__(self, *error: object) -> None:
        hiders.remove(self.hidden)

    def draw(self, text: str, lines: Sequence[str]) -> None:
        r"""Show ``text`` above the region, and ``lines`` as the new region, in one write.

        Args:
            text: Safe whole lines, or an empty string.
            lines: Text that may contain any character; ``\t`` and ``\n`` become spaces.
        """
        with self._lock:
            columns, rows = terminal_size(self._stream)
            most = min(self._most, rows - 2)
            cut = [_cut(line, columns - 1) for line in lines[:most]]
            if len(lines) > most:
                cut.append(_cut(f"… {len(lines) - most} more", columns - 1))
            shown = [line for line, _ in cut]
            if not text and shown == self._shown:
                return
            back = self._back(columns)
            if text and back:
                back += "\033[J"
            body = "".join(f"{line}\033[K\n" for line in shown)
            self._shown, self._widths = shown, [width for _, width in cut]
            if body:
                body = f"{_MARGINS_OFF}{body}{_MARGINS_ON}"
            self._write(f"{back}{text}{body}" + ("\033[J" if back and not text else ""))

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the region while another thread or a library writes to the terminal."""
        with self._lock:
            back = self._back(terminal_size(self._stream)[0])
            self._shown, self._widths = [], []
            if back:
                with suppress(OSError, ValueError):  # the next drawing raises it
                    self._write(f"{back}\033[J")
            yield

    def _write(self, text: str) -> None:
        write_safe(self._stream, text)
        self._stream.flush()

    def _back(self, columns: int) -> str:
        """Return what moves the cursor to the first row of the region.

        Most terminals break a line in two when they become narrower than the line.
        """
        height = sum(max(1, -(-width // columns)) for width in self._widths)
        return f"\033[{height}F" if height else ""


def _cut(text: str, columns: int) -> tuple[str, int]:
    """Return the safe beginning of a text that fits into some columns, and its width."""
    text = escape_controls(text[:_LONGEST_CHARS].translate(_SPACES))
    parts = _SEQUENCE.split(text)
    width = 0
    for i in range(0, len(parts), 2):  # the other parts are colours
        part = parts[i]
        if _NARROW.match(part):
            parts[i] = part[: columns - width]
            width += len(parts[i])
            continue
        for k, character in enumerate(part):
            if width + _character_width(character) > columns:
                parts[i] = part[:k]
                columns = width
                break
            width += _character_width(character)
    return "".join(parts) + ("\033[0m" if len(parts) > 1 else ""), width


@lru_cache(maxsize=4096)
def _character_width(character: str) -> int:
    if character == "\ufe0f":  # the character before it becomes an emoji, which is wide
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
