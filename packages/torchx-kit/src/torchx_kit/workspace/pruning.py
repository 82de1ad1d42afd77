"""Finds unused caches in ``$TORCHX_HOME/cache``, and helps pruners to measure and remove folders.

The caches may be deleted at any time: a missing entry only makes the next submission slower.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from torchx_kit.home import home_path
from torchx_specs.errors import BackendError
from torchx_specs.workspace.pruning import Prunable, PruneQuery

#: How long data must be unused before it may be removed, in seconds, unless the user sets an age.
DEFAULT_AGE = 7 * 86400.0


class PruneError(BackendError):
    """Unused data cannot be removed."""


def unused_caches(query: PruneQuery) -> Iterator[Prunable]:
    """Yield an item for each folder of ``$TORCHX_HOME/cache`` that has old files to remove.

    Args:
        query: The user's request. With ``include_newest``, all files count as old.
    """
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    before = time.time() - (0 if query.include_newest else age)
    try:
        entries = os.scandir(home_path("cache"))
        folders = sorted(e.path for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return
    for folder in folders:
        found = list(_old_files(folder, before))
        if found:
            size = sum(status.st_size for _, status in found)
            newest = max(status.st_mtime for _, status in found)
            yield Prunable(folder, size, partial(_remove_files, folder, before), newest)


def tree_size(folder: str) -> int:
    """Return the size of all files in a folder, in bytes; unreadable folders count as empty."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(parent, name)).st_size
    return size


def remove_folder(folder: str, is_unused: Callable[[str], bool]) -> None:
    """Remove a folder; other processes see the whole folder or none.

    The folder is renamed first. So a process that marks the folder as used either does that before
    ``is_unused`` is called, or no longer finds the folder.

    Args:
        folder: The folder; a missing folder is not an error.
        is_unused: Called with the new path of the folder; returns False if the folder must stay.

    Raises:
        PruneError: The folder is in use, or cannot be removed.
    """
    import shutil

    parent, name = os.path.split(folder)
    moved = os.path.join(parent, f".{name}.{os.urandom(6).hex()}.pruned")
    try:
        os.rename(folder, moved)
    except FileNotFoundError:
        return
    except OSError as e:
        raise PruneError(f"cannot remove {folder}: {e.strerror or e}") from None
    if not is_unused(moved):
        try:
            os.rename(moved, folder)
        except OSError:
            pass  # a submission has created the folder again, so the old one is not needed
        else:
            raise PruneError(f"{folder} was not removed: a submission has just used it")
    try:
        shutil.rmtree(moved)
    except OSError as e:
        raise PruneError(f"cannot remove {moved}: {e.strerror or e}") from None


def _old_files(folder: str, before: float) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as scan:
        for entry in scan:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if entry.is_file(follow_symlinks=False) and status.st_mtime <= before:
                yield entry.path, status


def _remove_files(folder: str, before: float) -> None:
    try:
        for path, _ in _old_files(folder, before):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as e:
        raise PruneError(f"cannot remove the files in {folder}: {e.strerror or e}") from None
