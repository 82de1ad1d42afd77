"""The index of apps: a folder with a link to the folder of each app."""

from __future__ import annotations

import contextlib
import os

from torchx_kit.home import make_private
from torchx_sched_local.store.app_folder import DELETED, AppFolder
from torchx_sched_local.store.layout import PRIVATE, index_folder


def add(app_id: str, folder: str) -> None:
    """Add an app to the index.

    Args:
        app_id: The app's id.
        folder: The app's folder.

    Raises:
        OSError: The index cannot be written.
        ConfigError: The folder of the index cannot be created.
    """
    index = index_folder()
    path = os.path.join(index, app_id)
    try:
        os.symlink(folder, path)
    except FileNotFoundError:
        make_private(index)
        os.symlink(folder, path)


def remove(app_id: str) -> None:
    """Remove an app from the index."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(index_folder(), app_id))


def find(app_id: str) -> AppFolder | None:
    """Return the folder of an app, or None if there is no such app.

    If a deletion of the app was interrupted, finish the deletion. If the folder does not exist any
    more, remove the app from the index.
    """
    if not app_id or "/" in app_id or "\0" in app_id or app_id.startswith("."):
        return None  # not a valid id; as a path it would lead out of the index
    try:
        path = os.readlink(os.path.join(index_folder(), app_id))
    except OSError:
        return None
    folder = AppFolder(path)
    if os.path.isdir(os.path.join(path, PRIVATE)):
        return folder
    with contextlib.suppress(OSError):
        if os.path.isdir(os.path.join(path, DELETED)):
            folder.delete()
        if not os.path.exists(path):
            remove(app_id)
    return None


def app_ids() -> list[str]:
    """Return the ids of all apps in the index, the newest one first."""
    try:
        names = os.listdir(index_folder())
    except OSError:
        return []
    return sorted((name for name in names if not name.startswith(".")), key=_added, reverse=True)


def _added(app_id: str) -> int:
    """Return when an app was added to the index; 0 if it has been deleted meanwhile."""
    try:
        return os.lstat(os.path.join(index_folder(), app_id)).st_mtime_ns
    except OSError:
        return 0
