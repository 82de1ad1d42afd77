"""What builds remember on this machine: it saves work, and may be lost at any time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_specs.home import home_path

#: How many things of a kind are remembered; those written longest ago are forgotten.
MOST = {"images": 32, "layers": 512}


def recall(kind: str, key: str) -> dict[str, Any] | None:
    """Returns what was remembered, None if nothing, or if it is not whole or not only this user's.

    Args:
        kind: one of :data:`MOST`
        key: any text
    """
    try:
        with open(_path(kind, key), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            check, _, data = file.read().partition(b"\n")
        if hashlib.sha256(data).hexdigest().encode() != check:
            return None
        found: dict[str, Any] = json.loads(data)
    except (OSError, ValueError):
        return None
    return found if found.pop("key", None) == key else None


def remember(kind: str, key: str, what: dict[str, Any]) -> None:
    """Remembers something, in ``$TORCHX_HOME/cache``; if that cannot be written to, it does not."""
    path = _path(kind, key)
    folder = os.path.dirname(path)
    data = json.dumps({**what, "key": key}).encode()
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_atomically(path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        with os.scandir(folder) as scan:
            found = [(entry.stat().st_mtime, entry.path) for entry in scan]
        for _, old in sorted(found)[: -MOST[kind]]:
            os.unlink(old)


def _path(kind: str, key: str) -> str:
    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    return home_path("cache", kind, name[:32])
