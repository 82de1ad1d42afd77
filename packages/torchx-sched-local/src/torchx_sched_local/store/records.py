"""Records: lines of JSON with a checksum, by which readers detect damaged lines."""

from __future__ import annotations

import binascii
import contextlib
import json
from collections.abc import Iterator
from typing import Any

# json.dumps() would make an encoder for each record. The output is ASCII: paths that are not valid
# UTF-8 contain surrogates, which UTF-8 cannot encode.
_encode_json = json.JSONEncoder(separators=(",", ":")).encode
_CHECKSUM_DIGITS = 8


def encode(data: Any) -> bytes:
    """Return a record: a checksum, a space, the data as JSON, and a newline."""
    text = _encode_json(data).encode()
    return b"%08x %s\n" % (binascii.crc32(text), text)


def decode_lines(data: bytes, skipped: tuple[bytes, ...] = ()) -> tuple[list[Any], int, bool]:
    """Return the data of the records in a text whose last line may be incomplete.

    Args:
        data: The text. Empty lines are ignored.
        skipped: Records with a text that starts so are checked, but not returned.

    Returns:
        The data of each record, the length of the complete lines in bytes, and True if there were
        damaged lines.
    """
    end = data.rfind(b"\n") + 1
    found, is_damaged = [], False
    for line in filter(None, data[:end].split(b"\n")):
        try:
            if text_of(line).startswith(skipped):
                check(line)
            else:
                found.append(decode(line))
        except ValueError:  # a crash of the machine can damage a line
            is_damaged = True
    return found, end, is_damaged


def decode_kind(data: bytes, kind: bytes) -> Iterator[Any]:
    """Yield the data of the records in a text that begin with ``kind``; skip damaged ones."""
    for line in data.split(b"\n"):
        if text_of(line).startswith(kind):
            with contextlib.suppress(ValueError):
                yield decode(line)


def decode(line: bytes) -> Any:
    """Return the data of a record.

    Args:
        line: The record, with or without its newline.

    Raises:
        ValueError: The line is not a record, or it is damaged.
    """
    check(line)
    try:
        return json.loads(text_of(line))
    except RecursionError:
        raise ValueError("the data is nested too deeply") from None


def check(line: bytes) -> None:
    """Raise ValueError unless the checksum of a record matches."""
    if line[: _CHECKSUM_DIGITS + 1] != b"%08x " % binascii.crc32(text_of(line)):
        raise ValueError("the checksum does not match")


def text_of(line: bytes) -> bytes:
    """Return the text of a record, without its checksum and newline."""
    return line[_CHECKSUM_DIGITS + 1 :].rstrip(b"\n")
