"""The index of apps: a folder with a link to the folder of each."""

from __future__ import annotations

import os

from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.layout import PRIVATE, index_folder


def add(app_id: str, folder: str) -> None:
    """Adds an app to the index.

    Raises:
        OSError: the index cannot be written
    """
    index = index_folder()
    path = os.path.join(index, app_id)
    try:
        os.symlink(folder, path)
    except FileNotFoundError:
        os.makedirs(index, mode=0o700, exist_ok=True)
        os.symlink(folder, path)


def remove(app_id: str) -> None:
    """Takes an app out of the index."""
    try:
        os.unlink(os.path.join(index_folder(), app_id))
    except OSError:
        pass


def find(app_id: str) -> AppFolder | None:
    """Returns the folder of an app, None if there is no such app."""
    if not app_id or "/" in app_id or "\0" in app_id or app_id.startswith("."):
        return None  # not a name that an app can have: it would lead elsewhere
    try:
        path = os.readlink(os.path.join(index_folder(), app_id))
    except OSError:
        return None
    return AppFolder(path) if os.path.isdir(os.path.join(path, PRIVATE)) else None


def remove_dangling(app_id: str) -> None:
    """Takes an app out of the index if somebody has removed its folder by hand."""
    if not os.path.exists(os.path.join(index_folder(), app_id)):
        remove(app_id)


def app_ids() -> list[str]:
    """Returns the ids of all apps in the index, in order."""
    try:
        return sorted(name for name in os.listdir(index_folder()) if not name.startswith("."))
    except OSError:
        return []
