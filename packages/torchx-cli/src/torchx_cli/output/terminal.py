r"""Prepares the standard streams and the terminal: any text, safe text, text that is replaced.

Text from outside, such as logs, names and errors, is made safe for a terminal. A terminal obeys
control characters: text can clear the screen, change the window's title, or hide what was printed
before. Safe text keeps tabs, line ends and SGR sequences (colours, bold). Every other control
character is written as its escape, such as ``\u001b``: C0 and C1 controls (which begin all other
CSI, OSC and DCS sequences), DEL, and the characters that change the direction of text. Colours end
with their line, so that a name or an error cannot hide other text.

Standard output is filtered only if it is a terminal: the bytes that a job wrote reach a pipe or a
file unchanged. Error messages and log records are always filtered.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any, TextIO

from torchx_cli.output.colors import is_terminal
from torchx_specs.errors import RequestError

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


# -- the standard streams: any text in every locale, closed streams


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Make both output streams accept any text, until the end of the context.

    Characters that a stream cannot encode are written as escapes. On standard output, surrogate
    escapes, which stand for bytes that could not be decoded, are written as the original bytes. A
    stream that was closed when this process began discards everything. If standard output is a
    terminal, its text is made safe.
    """
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stream: Any = getattr(sys, name)
            if stream is None:
                setattr(sys, name, stack.enter_context(open(os.devnull, "w")))
                stack.callback(setattr, sys, name, None)
            elif isinstance(stream, io.TextIOWrapper) and stream.errors in _RAISING:
                before = stream.errors
                codecs.register_error(_ERRORS, _escaped)
                stream.reconfigure(errors=_ERRORS)
                stack.callback(_reconfigure, stream, before)
        if type(sys.stdout) is io.TextIOWrapper and is_terminal(sys.stdout):
            safe = SafeTerminal(sys.stdout)
            stack.callback(setattr, sys, "stdout", sys.stdout)
            stack.callback(safe.release)
            sys.stdout = safe
        yield


# The error handlers that can raise; "surrogateescape" is the default in the C locale.
_RAISING = ("strict", "surrogateescape")
_ERRORS = "torchx-escape"


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _reconfigure(stream: io.TextIOWrapper, errors: str) -> None:
    with suppress(OSError, ValueError):  # the stream is closed, or cannot be flushed
        stream.reconfigure(errors=errors)


def write_utf8(text: str) -> None:
    """Write a JSON or YAML document to standard output as UTF-8, in every locale."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.flush()
        if isinstance(stream, SafeTerminal):
            # The documents contain control characters only in strings, where JSON reads the same
            # escapes.
            text = escape_controls(text)
        # JSON and YAML have the same escapes for lone surrogates as Python.
        stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    else:
        stream.write(text)


def read_utf8(what: str) -> str:
    """Return the whole text of standard input.

    Args:
        what: A description of the text, for error messages.

    Raises:
        RequestError: The text is not UTF-8, or standard input is closed.
    """
    from torchx_specs.formats.documents import decode

    stream = sys.stdin
    if stream is None:
        raise RequestError(f"{what}: standard input is closed")
    if not isinstance(stream, io.TextIOWrapper):
        return str(stream.read())
    return decode(stream.buffer.read(), what)


# -- text that is replaced on a terminal


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
