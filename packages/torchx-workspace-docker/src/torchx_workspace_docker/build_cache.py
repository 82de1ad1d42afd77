"""A cache of earlier builds, in ``$TORCHX_HOME/cache``; the files may be deleted at any time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import home_path
from torchx_kit.trust import open_trusted

#: The largest number of entries of each kind; the oldest entries are deleted. The kinds are the
#: last image of each workspace, the layers in registries, and the uses of images.
MAX_ENTRIES = {"images": 32, "layers": 512, "used": 512}


def recall(kind: str, key: str) -> dict[str, Any] | None:
    """Return an entry, or None if there is none.

    A file that is damaged, or that another user may write, counts as missing.

    Args:
        kind: A key of :data:`MAX_ENTRIES`.
        key: The text that identifies the entry.
    """
    try:
        with open_trusted(_path(kind, key)) as file:
            checksum, _, data = file.read().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() != checksum:
            return None
        entry: dict[str, Any] = json.loads(data)
    except (OSError, ValueError):
        return None
    return entry if entry.pop("key", None) == key else None


def remember(kind: str, key: str, entry: dict[str, Any]) -> None:
    """Write an entry to the cache, and delete the oldest; do nothing if that is not possible."""
    path = _path(kind, key)
    folder = os.path.dirname(path)
    data = json.dumps({**entry, "key": key}).encode()
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_atomically(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        with os.scandir(folder) as scan:
            files = [(file.stat().st_mtime, file.path) for file in scan]
        for _, oldest in sorted(files)[: -MAX_ENTRIES[kind]]:
            os.unlink(oldest)


def used_at(image: str) -> float:
    """Return when this user used an image last, in seconds since 1970; 0 if unknown.

    Args:
        image: The name of the image; :func:`remember` records each use with the kind ``used``.
    """
    try:
        return os.stat(_path("used", image)).st_mtime
    except OSError:
        return 0.0


def _path(kind: str, key: str) -> str:
    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return home_path("cache", kind, name[:32])
