r"""Makes text from outside, such as logs, names and errors, safe to print on a terminal.

A terminal obeys control characters: text can clear the screen, change the window's title, or
hide what was printed before. Safe text keeps tabs, line ends and SGR sequences (colours, bold).
Every other control character is written as its escape, such as ``\u001b``: C0 and C1 controls
(which begin all other CSI, OSC and DCS sequences), DEL, and the characters that change the
direction of text. Colours end with their line, so that a name or an error cannot hide other text.

Standard output is filtered only if it is a terminal: the bytes that a job wrote reach a pipe or a
file unchanged. Error messages and log records are always filtered.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import TextIO

_RESET = "\033[0m"
_RESETS = (_RESET, "\033[m")
_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")
_COLORS = r"(?!\[[0-9;:]*m)"
_CONTROLS = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@cache
def _pattern(keep_returns: bool, keep_colors: bool) -> re.Pattern[str]:
    escape = rf"\x1b{_COLORS}" if keep_colors else r"\x1b"
    return re.compile(rf"{escape}|{_CONTROLS}" + ("" if keep_returns else r"|\r(?!\n)"))


def escape_controls(text: str, *, keep_returns: bool = False, keep_colors: bool = True) -> str:
    r"""Return safe text; see the module's description.

    >>> escape_controls("\033[31mred\033[0m \033[2Jclear")
    '\x1b[31mred\x1b[0m \\u001b[2Jclear'

    Args:
        text: The text.
        keep_returns: Whether to keep carriage returns. Progress bars in logs need them; each
            part of such a line begins with the name of its replica. Otherwise only ``\r\n`` keeps
            its carriage return.
        keep_colors: Whether to keep SGR sequences.
    """
    # Most text has no control characters, and is returned unchanged.
    pattern = _pattern(keep_returns, keep_colors)
    if pattern.search(text) is None:
        return text
    return pattern.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def safe_message(text: str) -> str:
    r"""Return a safe message for a terminal; a line with colours ends with a reset of them.

    >>> safe_message("cannot run '\033[8mx'")
    "cannot run '\x1b[8mx'\x1b[0m"
    """
    text = escape_controls(text)
    if "\033" not in text:
        return text
    return "".join(map(_end_colors, text.splitlines(keepends=True)))


def safe_log_lines(lines: Iterable[str]) -> list[str]:
    r"""Return safe log lines; a line with colours ends with a reset of them."""
    return [_end_colors(escape_controls(line, keep_returns=True)) for line in lines]


def _end_colors(line: str) -> str:
    if "\033" not in line:
        return line
    body = line.rstrip("\n")
    return body + _RESET + line[len(body) :]


class SafeTerminal(io.TextIOWrapper):
    """A text stream that writes to a terminal, and makes all text safe.

    At the end of each line, it resets the colours that are still in effect.

    Args:
        stream: The stream of the terminal. It shares its buffer with this object until
            :meth:`release`.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True
        )
        self._is_colored = False

    def write(self, text: str) -> int:
        """Write text with its control characters escaped, and its colours ended at line ends."""
        safe = escape_controls(text)
        if self._is_colored or "\033" in safe:
            safe = "".join(map(self._with_reset, safe.splitlines(keepends=True)))
        super().write(safe)
        return len(text)

    def write_safe(self, text: str) -> None:
        """Write text that is already safe, and may contain carriage returns."""
        super().write(text)

    def _with_reset(self, line: str) -> str:
        colors = _SEQUENCE.findall(line)
        if colors:
            self._is_colored = colors[-1] not in _RESETS
        body = line.rstrip("\r\n")
        if body == line or not self._is_colored:
            return line
        self._is_colored = False
        return body + _RESET + line[len(body) :]

    def release(self) -> None:
        """Flush the text, and detach the buffer; the wrapped stream continues to use the buffer."""
        with suppress(OSError, ValueError):  # the command reported that the terminal is closed
            if self._is_colored:
                self.write_safe(_RESET)
            self.flush()
        with suppress(OSError, ValueError):  # detach() flushes first, and fails as flush() did
            self.detach()


def write_safe(stream: TextIO, text: str) -> None:
    """Write text that is already safe; ``stream`` may be any text stream."""
    if isinstance(stream, SafeTerminal):
        stream.write_safe(text)
    else:
        stream.write(text)
