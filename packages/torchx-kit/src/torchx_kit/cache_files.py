"""Caches of kinds of data in ``$TORCHX_HOME/cache``; the files may be deleted at any time."""

from __future__ import annotations

import contextlib
import os

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import home_path
from torchx_kit.trust import open_trusted


def read_cached(kind: str, key: str) -> bytes:
    """Return the data of a key, or empty bytes if there is none.

    A file that is damaged, or that another user may write, counts as missing.

    Args:
        kind: The kind of the data, which has a folder of its own.
        key: The text that identifies the data.
    """
    try:
        with open_trusted(cache_path(kind, key)) as file:
            checksum, _, data = file.read().partition(b"\n")
    except OSError:
        return b""
    return data if checksum == _sha256(data) else b""


def write_cached(kind: str, key: str, data: bytes, most: int) -> None:
    """Replace the data of a key; do nothing if the cache cannot be written.

    Args:
        kind: As for :func:`read_cached`.
        key: As for :func:`read_cached`.
        data: The data.
        most: The largest number of keys of this kind; the data of the oldest are deleted.
    """
    path = cache_path(kind, key)
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_atomically(path, _sha256(data) + b"\n" + data)
        with os.scandir(folder) as scan:
            files = [(entry.stat().st_mtime, entry.path) for entry in scan]
        for _, oldest in sorted(files)[:-most]:
            os.unlink(oldest)


def cache_path(kind: str, key: str) -> str:
    """Return the path of the file with the data of a key."""
    name = _sha256(key.encode("utf-8", "surrogateescape")).decode()
    return home_path("cache", kind, name[:32])


def _sha256(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(data).hexdigest().encode()
