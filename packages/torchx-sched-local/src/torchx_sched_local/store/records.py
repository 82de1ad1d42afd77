"""Records: lines of JSON with a checksum, so that readers ignore damaged ones."""

from __future__ import annotations

import binascii
import json
from typing import Any

# json.dumps would make an encoder for each record. ASCII only, so that bytes that are not UTF-8 are
# read back unchanged.
_encode_json = json.JSONEncoder(separators=(",", ":")).encode
_CHECKSUM_DIGITS = 8


def encode(data: Any) -> bytes:
    """Return a record: a checksum, a space, the data as JSON, and a newline."""
    text = _encode_json(data).encode()
    return b"%08x %s\n" % (binascii.crc32(text), text)


def decode(line: bytes) -> Any:
    """Return the data of a record.

    Args:
        line: The record, with or without its newline.

    Raises:
        ValueError: The line is not a record, or it is damaged.
    """
    text = line[_CHECKSUM_DIGITS + 1 :].rstrip(b"\n")
    if line[: _CHECKSUM_DIGITS + 1] != b"%08x " % binascii.crc32(text):
        raise ValueError("the checksum does not match")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the data is nested too deeply") from None
