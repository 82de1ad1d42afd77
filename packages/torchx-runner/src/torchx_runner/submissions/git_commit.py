"""Reads the commit that is checked out in a folder, without starting git."""

from __future__ import annotations

import os
import re

# A commit in hexadecimal digits: SHA-1 or SHA-256.
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_MAX_BYTES = 1 << 22


def checked_out_commit(folder: str) -> str | None:
    """Return the commit that is checked out in a folder or in one of its parents.

    The result is the same if files have uncommitted changes.

    Args:
        folder: Any folder.

    Returns:
        The commit, or None if the folder is not in a git repository, or the repository has no
        commit or cannot be read.
    """
    try:
        git_dir = _find_git_dir(os.path.abspath(folder))
        return None if git_dir is None else _head(git_dir)
    except (OSError, ValueError):
        return None


def _find_git_dir(folder: str) -> str | None:
    while True:
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        if os.path.isfile(path):  # a worktree or a submodule
            prefix, _, target = _read(path).partition(":")
            return os.path.join(folder, target.strip()) if prefix == "gitdir" else None
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _head(git_dir: str) -> str | None:
    head = _read(os.path.join(git_dir, "HEAD")).strip()
    prefix, _, name = head.partition(":")
    if prefix != "ref":
        return head if _COMMIT.match(head) else None
    name = name.strip()
    common = os.path.join(git_dir, "commondir")
    folders = [git_dir]
    if os.path.isfile(common):
        folders.append(os.path.join(git_dir, _read(common).strip()))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            commit = _read(path).strip()
            return commit if _COMMIT.match(commit) else None
    for folder in folders:
        path = os.path.join(folder, "packed-refs")
        if os.path.isfile(path):
            for line in _read(path).splitlines():
                commit, _, packed = line.partition(" ")
                if packed == name and _COMMIT.match(commit):
                    return commit
    return None


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read(_MAX_BYTES)
