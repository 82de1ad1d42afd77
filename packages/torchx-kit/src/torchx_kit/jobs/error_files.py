"""Shortens the error that a replica reports in a file (``TORCHELASTIC_ERROR_FILE``)."""

from __future__ import annotations

import json
from typing import Any

#: How many bytes of an error file are read. Only the beginning of a longer file is shown, as text.
READ_BYTES = 1 << 20
# A shortened text keeps this many characters of its beginning, and of its end.
_HEAD, _TAIL = 4 << 10, 4 << 10


def error_text(content: bytes, size: int, path: str) -> str:
    """Return the content of an error file; if it is JSON, as compact JSON.

    Content of more than 8 KB is shortened. Of an error in torchelastic's format, only message, time
    and exit code are kept. Then a note with the path replaces the middle of the message, or of any
    other content. If ``content`` is only a part of the file, the note follows its beginning.

    Args:
        content: The first bytes of the file, at most :data:`READ_BYTES`.
        size: The size of the file, in bytes. If the size is unknown and ``content`` is only a part
            of the file, pass any number that is larger than the length of ``content``.
        path: The path of the file, for the text of a shortened error.
    """
    text = content.decode("utf-8", "replace").strip()
    note = f"[shortened; the whole error is in {path}]"
    if len(content) < size:
        return f"{text[: _HEAD + _TAIL]}...\n{note}"
    data: Any = None
    try:
        data = json.loads(text)
        text = json.dumps(data, separators=(",", ":"))
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        pass
    if len(text) <= _HEAD + _TAIL:
        return text
    error = _known_error(data)
    if error is None:
        return _shorten(text, note)
    error["message"] = _shorten(error["message"], note)
    return json.dumps({"message": error}, separators=(",", ":"))


def _known_error(data: Any) -> dict[str, Any] | None:
    """Return message, time and exit code of an error; None if the format is not torchelastic's."""
    inner = data.get("message", data) if isinstance(data, dict) else None
    inner = inner if isinstance(inner, dict) else data
    if not isinstance(inner, dict) or not isinstance(inner.get("message"), str):
        return None
    extra = inner.get("extraInfo")
    timestamp = extra.get("timestamp") if isinstance(extra, dict) else inner.get("timestamp")
    found = {"message": inner["message"], "extraInfo": {"timestamp": timestamp}}
    if "errorCode" in inner:
        found["errorCode"] = inner["errorCode"]
    return found


def _shorten(text: str, note: str) -> str:
    """Return a text with a note; a long text loses its middle."""
    if len(text) <= _HEAD + _TAIL:
        return f"{text}\n{note}"
    return f"{text[:_HEAD]}...\n{note}\n...{text[-_TAIL:]}"
