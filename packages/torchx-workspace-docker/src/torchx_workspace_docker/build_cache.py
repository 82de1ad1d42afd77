"""A cache of earlier builds, in ``$TORCHX_HOME/cache``; the files may be deleted at any time."""

from __future__ import annotations

import json
import os
from typing import Any

from torchx_kit.cache_files import cache_path, read_cached, write_cached

#: The largest number of entries of each kind; the oldest entries are deleted. The kinds are the
#: last image of each workspace, the layers in registries, and the uses of images.
MAX_ENTRIES = {"images": 32, "layers": 512, "used": 512}


def recall(kind: str, key: str) -> dict[str, Any] | None:
    """Return an entry, or None if there is none.

    Args:
        kind: A key of :data:`MAX_ENTRIES`.
        key: The text that identifies the entry.
    """
    data = read_cached(kind, key)
    found: dict[str, Any] | None = json.loads(data) if data else None
    return found


def remember(kind: str, key: str, entry: dict[str, Any]) -> None:
    """Write an entry to the cache, and delete the oldest; do nothing if that is not possible."""
    write_cached(kind, key, json.dumps(entry).encode(), MAX_ENTRIES[kind])


def used_at(image: str) -> float:
    """Return when this user used an image last, in seconds since 1970; 0 if unknown.

    Args:
        image: The name of the image; :func:`remember` records each use with the kind ``used``.
    """
    try:
        return os.stat(cache_path("used", image)).st_mtime
    except OSError:
        return 0.0
