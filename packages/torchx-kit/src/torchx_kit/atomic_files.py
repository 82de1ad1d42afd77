"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os


def write_atomically(path: str, content: str | bytes, mode: int = 0o600) -> None:
    """Writes a file, or replaces it; a reader sees the one before or this one, never a part.

    Args:
        path: the file; its folder is there
        content: text is written as UTF-8, surrogate escapes as the bytes they stand for
        mode: permission bits; by default only its owner can read it

    Raises:
        OSError: it cannot be written; what was there before still is
    """
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    folder, name = os.path.split(path)
    # hidden, and one for each call: threads and processes write at once
    partial = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
