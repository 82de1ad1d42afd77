"""A walk by the ignore rules, through a folder of this machine or of any fsspec file system."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.workspace.ignore import ROOT, TORCHX_IGNORE, IgnoreRules, Verdict
from torchx_specs.errors import WorkspaceError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def walk_workspace(
    fs: AbstractFileSystem | None, path: str, ignore_name: str | Sequence[str] = TORCHX_IGNORE
) -> Iterator[tuple[str, list[str], dict[str, dict[str, Any]]]]:
    """Walks a workspace from the top, without what its ignore file leaves out.

    Symbolic links are not followed: they are among the files, with ``islink`` set.

    Args:
        fs: an fsspec file system, or None for this machine without fsspec
        path: the root, on ``fs``
        ignore_name: name of the ignore file in the root; of several, the rules add up in that order

    Yields:
        a folder, the names of the folders in it, and its files by name with their details as fsspec
        gives them (at least ``name``, ``size`` and ``type``)

    Raises:
        WorkspaceError: ``path`` is no folder, or something cannot be read
    """
    rules = read_ignore_rules(fs, path, ignore_name)
    if fs is None or is_local(fs):
        for folder, _, folders, entries in walk_local(path, rules):
            yield folder, folders, {entry.name: _details(entry) for entry in entries}
    else:
        for folder, _, folders, files in walk_fsspec(fs, path, rules):
            yield folder, folders, files


def read_ignore_rules(
    fs: AbstractFileSystem | None, root: str, ignore_name: str | Sequence[str] = TORCHX_IGNORE
) -> IgnoreRules:
    """Returns the rules of the ignore file in the folder ``root``; none if there is no such file.

    Raises:
        WorkspaceError: the file is there and cannot be read
    """
    rules = IgnoreRules()
    for name in [ignore_name] if isinstance(ignore_name, str) else ignore_name:
        path = f"{root.rstrip('/')}/{name}"
        try:
            if fs is None or is_local(fs):
                with open(path, "rb") as fp:
                    text = fp.read()
            else:
                text = fs.cat_file(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as e:
            raise unreadable(path, e) from None
        rules = rules + IgnoreRules.parse(text.decode("utf-8", "replace"))
    return rules


def walk_local(
    root: str, rules: IgnoreRules
) -> Iterator[tuple[str, str, list[str], list[os.DirEntry[str]]]]:
    """Walks a folder of this machine.

    Yields:
        a folder, the same relative to ``root`` (empty for the root itself), the names of the
        folders in it that are walked, and everything else in it that is not left out, ordered by
        name

    Raises:
        WorkspaceError: a folder cannot be read
    """
    pending: list[tuple[str, str, Verdict]] = [(root, "", ROOT)]
    while pending:
        folder, relative, verdict = pending.pop()
        folders: list[str] = []
        files: list[os.DirEntry[str]] = []
        below: list[tuple[str, str, Verdict]] = []
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=_by_name)
        except OSError as e:
            raise unreadable(folder, e) from None
        for entry in entries:
            name = entry.name
            path = f"{relative}/{name}" if relative else name
            is_folder = entry.is_dir(follow_symlinks=False)
            judged = rules.verdict(path, is_folder, verdict) if rules else verdict
            if not is_folder:
                if not judged.ignored:
                    files.append(entry)
            elif rules.enters(path, judged):
                folders.append(name)
                below.append((entry.path, path, judged))
        yield folder, relative, folders, files
        pending += reversed(below)


def walk_fsspec(
    fs: AbstractFileSystem, root: str, rules: IgnoreRules
) -> Iterator[tuple[str, str, list[str], dict[str, dict[str, Any]]]]:
    """Walks a folder of any file system, as :func:`walk_local` does.

    Yields:
        the same, but the files by name with their details

    Raises:
        WorkspaceError: a folder cannot be listed
    """
    pending: list[tuple[str, str, Verdict]] = [(root, "", ROOT)]
    while pending:
        folder, relative, verdict = pending.pop()
        folders: list[str] = []
        files: dict[str, dict[str, Any]] = {}
        below: list[tuple[str, str, Verdict]] = []
        try:
            listing: list[dict[str, Any]] = fs.ls(folder, detail=True)
        except OSError as e:
            raise unreadable(folder, e) from None
        for info in sorted(listing, key=lambda info: str(info["name"])):
            source = str(info["name"]).rstrip("/")
            if source.strip("/") == folder.strip("/"):
                continue  # some object stores keep a marker for the folder in the folder
            name = source.rpartition("/")[2]
            path = f"{relative}/{name}" if relative else name
            is_folder = info["type"] == "directory"
            judged = rules.verdict(path, is_folder, verdict) if rules else verdict
            if not is_folder:
                if not judged.ignored:
                    files[name] = info
            elif rules.enters(path, judged):
                folders.append(name)
                below.append((source, path, judged))
        yield folder, relative, folders, files
        pending += reversed(below)


def is_local(fs: AbstractFileSystem) -> bool:
    """Returns True for fsspec's file system of this machine."""
    protocol = fs.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def unreadable(path: str, error: OSError) -> WorkspaceError:
    """Returns the error for a file or folder of a workspace that cannot be read."""
    return WorkspaceError(
        f"cannot read {path} of the workspace: {error.strerror or error};"
        f" make it readable, or name it in {TORCHX_IGNORE}"
    )


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _details(entry: os.DirEntry[str]) -> dict[str, Any]:
    """Returns what fsspec tells of a local file."""
    status = entry.stat(follow_symlinks=False)
    is_link = entry.is_symlink()
    details: dict[str, Any] = {
        "name": entry.path,
        "size": status.st_size,
        "type": "file" if entry.is_file(follow_symlinks=False) else "other",
        "created": status.st_ctime,
        "islink": is_link,
        "mode": status.st_mode,
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime": status.st_mtime,
        "ino": status.st_ino,
        "nlink": status.st_nlink,
    }
    if is_link:
        details["destination"] = os.readlink(entry.path)
        try:
            details["size"] = entry.stat().st_size
        except OSError:
            details["size"] = 0
    return details
