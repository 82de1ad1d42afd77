"""Finds the folders of functions whose jobs ended long ago, for ``torchx workspace prune``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from torchx_functions.folders import open_group
from torchx_functions.group import JobGroup, read_counts, recover
from torchx_functions.host_folder import read_host_folder
from torchx_functions.job import default_runner, has_result
from torchx_functions.submissions import HANDLE, recorded_submissions
from torchx_kit.home import home_path
from torchx_kit.workspace.pruning import remove_folder, tree_size
from torchx_specs.errors import TorchXError, one_line
from torchx_specs.workspace.pruning import Prunable, PruneQuery

# A folder is old if it did not change for this time, in seconds, unless the user sets another age.
# This age is longer than the age for caches, because the folders contain results.
_DEFAULT_AGE = 30 * 86400.0


def unused_functions(query: PruneQuery) -> Iterator[Prunable]:
    """Yield the old folders of ``submit`` and ``map``; one that may be in use is not removable.

    The folders are those in ``$TORCHX_HOME/functions``, and those of the handles and submissions
    that ``$TORCHX_HOME`` records.

    Args:
        query: The user's request; the age of a folder is the time since its last change.
    """
    age = _DEFAULT_AGE if query.older_than is None else query.older_than
    old = [
        (folder, changed)
        for folder in sorted(_known_folders())
        if time.time() - (changed := _last_change(folder)) > age
    ]
    if not old:
        return
    _, unknown = recover(default_runner())
    for folder, changed in old:
        try:
            reason = _use_of(folder, unknown)
        except (TorchXError, OSError, ValueError) as e:
            reason = f"its record cannot be read: {one_line(e)}"
        remove = None if reason else partial(_remove, folder, changed)
        yield Prunable(folder, tree_size(folder), remove, changed, reason)


def _known_folders() -> set[str]:
    own = Path(home_path("functions")).glob("*")
    folders = {str(path) for path in own if not path.is_symlink()}
    folders |= {found.folder for found in recorded_submissions()}
    return {folder for folder in folders if os.path.isfile(os.path.join(folder, "job.json"))}


def _last_change(folder: str) -> float:
    """Return when a file of a group was last written, in seconds since 1970."""
    newest = 0.0
    for path, _, names in os.walk(folder):
        for name in (".", *names):
            with suppress(FileNotFoundError):
                newest = max(newest, os.lstat(os.path.join(path, name)).st_mtime)
    return newest


def _use_of(folder: str, unknown: Mapping[str, str]) -> str:
    """Return why a folder may still be in use; an empty string if all its jobs have ended."""
    with open_group(folder) as group:
        size, _ = read_counts(group)
        try:
            handle = group.read(HANDLE).decode()
        except FileNotFoundError:
            return unknown.get(folder, "")
    if all(has_result(os.path.join(folder, str(number))) for number in range(size)):
        return ""
    jobs = JobGroup.from_handle(handle)
    for number in range(size):
        try:
            if jobs.end_of(number) is None:
                return f"job {number} of {handle} has not ended"
        except TorchXError as e:
            return f"the state of {handle} is unknown: {one_line(e)}"
    return ""


def _remove(folder: str, changed: float) -> None:
    with open_group(folder) as group:
        there = read_host_folder(group)
    if there is not None and _last_change(folder) == changed:
        there.remove()  # first, because without the folder here nothing names the folder there
    remove_folder(folder, lambda moved: _last_change(moved) == changed)
