"""Standard input and output, whatever the locale and whoever has closed them."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torchx_specs.errors import RequestError


@contextmanager
def tolerant_streams() -> Iterator[None]:
    """Makes both output streams take whatever is written, until the end of the context.

    What the encoding of standard output lacks is written as escapes (standard error does that by
    itself), and bytes that were no text when they were read as those bytes; a stream that was
    closed before this process began takes everything and keeps nothing.
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
        yield


# the latter is the default in the locale C
_RAISING = ("strict", "surrogateescape")
_ERRORS = "torchx-escape"


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _reconfigure(stream: io.TextIOWrapper, errors: str) -> None:
    try:
        stream.reconfigure(errors=errors)
    except (OSError, ValueError):
        pass  # it cannot be flushed, or is closed: nothing more is written to it


def write_utf8(text: str) -> None:
    """Writes a JSON or YAML document to standard output: those are UTF-8 in every locale."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.flush()
        # JSON and YAML both read the escape of a character that UTF-8 lacks
        stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    else:
        stream.write(text)


def read_utf8(what: str) -> str:
    """Reads standard input to its end.

    Args:
        what: what messages call the text

    Raises:
        RequestError: it is not UTF-8 text, or there is no standard input
    """
    stream = sys.stdin
    if stream is None:
        raise RequestError(f"{what}: there is no standard input")
    if not isinstance(stream, io.TextIOWrapper):
        return str(stream.read())
    data: bytes = stream.buffer.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RequestError(f"{what}: not UTF-8 text (byte {e.start})") from None
