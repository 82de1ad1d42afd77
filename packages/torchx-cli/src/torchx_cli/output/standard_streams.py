"""Prepares the standard streams: any text in every locale, closed streams, terminals."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from torchx_cli.output.colors import is_terminal
from torchx_cli.output.terminal_safety import SafeTerminal, escape_controls
from torchx_specs.errors import RequestError


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Make both output streams accept any text, until the end of the context.

    Characters that a stream cannot encode are written as escapes. On standard output, surrogate
    escapes, which stand for bytes that could not be decoded, are written as the original bytes. A
    stream that was closed when this process began discards everything. If standard output is a
    terminal, its text is made safe (:mod:`torchx_cli.output.terminal_safety`).
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
