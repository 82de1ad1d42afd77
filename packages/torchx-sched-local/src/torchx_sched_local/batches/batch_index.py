"""Finds the apps of batches. The index of apps has a folder with a link to each batch."""

from __future__ import annotations

import os

from torchx_sched_local.batches.batch_app_folder import BatchAppFolder
from torchx_sched_local.batches.batch_files import BatchFiles
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.layout import PRIVATE, index_folder
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, is_alive

# The folder with the links to batches. It is in the index of apps, which ignores names with a dot
# at the start.
_FOLDER = ".batches"


def _link(batch_id: str) -> str:
    return os.path.join(index_folder(), _FOLDER, batch_id)


def add(batch_id: str, folder: str) -> None:
    """Add a batch to the index.

    Args:
        batch_id: The batch's id.
        folder: The batch's folder.

    Raises:
        OSError: The index cannot be written.
    """
    path = _link(batch_id)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.symlink(folder, path)


def find(app_id: str) -> AppFolder | None:
    """Return the folder of an app of a batch, or None if there is no such app."""
    batch_id, _, number = app_id.rpartition("-")
    if not batch_id or not (number.isascii() and number.isdigit()):
        return None
    try:
        path = os.readlink(_link(batch_id))
    except OSError:
        return None
    folder = BatchAppFolder(os.path.join(path, app_id))
    return folder if folder.exists() else None


def app_ids() -> list[str]:
    """Return the ids of the apps of all batches."""
    found: list[str] = []
    try:
        batch_ids = os.listdir(_link(""))
    except OSError:
        return found
    for batch_id in batch_ids:
        try:
            names = os.listdir(_link(batch_id))
        except OSError:
            continue
        found += [name for name in names if name != PRIVATE]
    return found


def folder_at(path: str) -> AppFolder:
    """Return the folder of an app by its path, whether or not the app is part of a batch."""
    if BatchFiles.is_batch(os.path.dirname(path)):
        return BatchAppFolder(path)
    return AppFolder(path)


def delete_if_unused(batch: BatchFiles, *, is_own: bool = False) -> None:
    """Delete a batch without apps, unless the process that created it may still add apps.

    Args:
        batch: The batch.
        is_own: Whether this process has created the batch and will add no more apps.
    """
    try:
        if not batch.is_empty():
            return
        header = batch.read_header()
        if header is None or not (is_own or _has_ended(header["starter"])):
            return
        batch.delete()
        os.unlink(_link(header["batch_id"]))
    except OSError:
        return  # the next deletion of an app tries again, or another process has deleted the batch


def _has_ended(starter: dict[str, object]) -> bool:
    """Return True if the process that created a batch has certainly ended."""
    if starter["node"] != os.uname().nodename:
        return False
    if starter["boot"] != process_table.boot_id():
        return True
    if starter["pid_namespace"] != process_table.pid_namespace():
        return False
    process = ProcessId(int(str(starter["pid"])), int(str(starter["start"])))
    return not is_alive(process)
