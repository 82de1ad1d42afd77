"""Records: lines of JSON with a checksum, by which readers detect damaged lines."""

from __future__ import annotations

import binascii
import json
from typing import Any

# json.dumps() would make an encoder for each record. The output is ASCII: paths that are not valid
# UTF-8 contain surrogates, which UTF-8 cannot encode.
_encode_json = json.JSONEncoder(separators=(",", ":")).encode
_CHECKSUM_DIGITS = 8


def encode(data: Any) -> bytes:
    """Return a record: a checksum, a space, the data as JSON, and a newline."""
    text = _encode_json(data).encode()
    return b"%08x %s\n" % (binascii.crc32(text), text)


def decode_lines(data: bytes, raw: bytes | None = None) -> tuple[list[Any], int, bool]:
    """Return the data of the records in a text whose last line may be incomplete.

    Args:
        data: The text. Empty lines are ignored.
        raw: Records that begin so are checked, but returned as text, for :func:`decode`.

    Returns:
        The data of each record, the length of the complete lines in bytes, and True if there were
        damaged lines.
    """
    end = data.rfind(b"\n") + 1
    found, is_damaged = [], False
    for line in filter(None, data[:end].split(b"\n")):
        text = line[_CHECKSUM_DIGITS + 1 :]
        try:
            if line[: _CHECKSUM_DIGITS + 1] != b"%08x " % binascii.crc32(text):
                raise ValueError("the checksum does not match")
            is_raw = raw is not None and text.startswith(raw)
            found.append(text if is_raw else decode(text))
        except ValueError:  # a crash of the machine can damage a line
            is_damaged = True
    return found, end, is_damaged


def decode(text: bytes) -> Any:
    """Return the data of a record.

    Args:
        text: The record without its checksum.

    Raises:
        ValueError: The text is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the data is nested too deeply") from None
