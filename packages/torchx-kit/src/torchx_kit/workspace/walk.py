"""Walk a folder without its ignored files, on this machine or on any fsspec file system."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from torchx_kit.logs.regular_files import open_regular
from torchx_kit.workspace.ignore import ROOT, TORCHX_IGNORE, IgnoreRules, Verdict
from torchx_kit.workspace.secret_files import looks_secret, warn_left_out
from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace.excluded_names import is_excluded

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

#: The largest size of an ignore file, in bytes.
_MAX_IGNORE_FILE = 1 << 20
#: The longest private folder that ``looks_secret`` recognizes has this many parts (.config/gcloud).
_PRIVATE_PARTS = 2


def walk_workspace(
    fs: AbstractFileSystem, path: str, ignore_name: str | Sequence[str] = TORCHX_IGNORE
) -> Iterator[tuple[str, list[str], dict[str, dict[str, Any]]]]:
    """Walk a workspace from the root; leave out excluded files and files that look like secrets.

    Symbolic links are not followed; those of this machine have ``islink`` in their details.

    Args:
        fs: An fsspec file system.
        path: The root, on ``fs``.
        ignore_name: Name of the ignore file in the root, or several names; their rules apply in
            this order. A missing file has no rules.

    Yields:
        A folder, the names of the subfolders that the walk enters, and the files by name, with
        details as in fsspec (at least ``name``, ``size`` and ``type``).

    Raises:
        WorkspaceError: ``path`` is not a folder, or a folder or the ignore file cannot be read.
    """
    rules = read_ignore_rules(fs, path, ignore_name)
    left_out: list[str] = []
    is_ours = is_local(fs)
    for folder, _, folders, files in walk(None if is_ours else fs, path, rules, left_out):
        if is_ours:
            files = {name: fs.info(entry) for name, entry in files.items()}
        yield folder, folders, files
    warn_left_out(left_out)


def read_ignore_rules(
    fs: AbstractFileSystem | None, root: str, ignore_name: str | Sequence[str] = TORCHX_IGNORE
) -> IgnoreRules:
    """Return the rules of the ignore files in the folder ``root``.

    Args:
        fs: An fsspec file system; None for this machine.
        root: The folder, on ``fs``.
        ignore_name: Name of the ignore file, or several names; their rules apply in this order. A
            missing file has no rules.

    Raises:
        WorkspaceError: The file cannot be read, is not a regular file, or is too large.
    """
    rules = IgnoreRules()
    for name in [ignore_name] if isinstance(ignore_name, str) else ignore_name:
        path = f"{root.rstrip('/')}/{name}"
        try:
            if fs is None or is_local(fs):
                with open(open_regular(path, os.O_RDONLY), "rb") as fp:
                    text = fp.read(_MAX_IGNORE_FILE + 1)
            else:
                text = fs.cat_file(path, end=_MAX_IGNORE_FILE + 1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as e:
            raise read_error(path, e) from None
        if len(text) > _MAX_IGNORE_FILE:
            raise WorkspaceError(f"{path} is larger than {_MAX_IGNORE_FILE >> 20} MiB; shorten it")
        rules = rules + IgnoreRules.parse(text.decode("utf-8", "replace"))
    return rules


def walk(
    fs: AbstractFileSystem | None, root: str, rules: IgnoreRules, left_out: list[str]
) -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
    """Walk a folder.

    On this machine, the files to which this process writes its standard output and errors are
    omitted, unless a rule includes them: they change while the workspace is read.

    Args:
        fs: An fsspec file system; None for this machine.
        root: The folder.
        rules: The rules that exclude files.
        left_out: A list to which the walk adds the paths, relative to ``root``, of the files that
            it omits because they look like secrets.

    Yields:
        A folder, its path relative to ``root`` (empty for the root), the names of the subfolders
        that the walk enters, and the other entries by name, except the excluded ones: entries of
        :func:`os.scandir`, or fsspec's details. All are ordered by name.

    Raises:
        WorkspaceError: A folder cannot be read.
    """
    is_ours = fs is None
    outputs = _output_files() if is_ours else set()
    real_root = os.path.realpath(root) if is_ours else root
    pending: list[tuple[str, str, Verdict]] = [(root, "", ROOT)]
    has_rules = bool(rules)
    # The workspace may be a private folder.
    above = "/".join(real_root.strip("/").split("/")[-_PRIVATE_PARTS:])
    while pending:
        folder, relative, verdict = pending.pop()
        folders: list[str] = []
        files: dict[str, Any] = {}
        below: list[tuple[str, str, Verdict]] = []
        try:
            listing = _entries(folder) if fs is None else _fsspec_entries(fs, folder)
            entries = sorted(listing, key=itemgetter(0))
        except OSError as e:
            raise read_error(folder, e) from None
        for name, is_folder, source, details in entries:
            path = f"{relative}/{name}" if relative else name
            # Most names need no verdict, and this loop runs for each file.
            if has_rules or is_excluded(name):
                own_verdict = rules.verdict(path, is_folder, verdict)
            else:
                own_verdict = verdict
            if is_folder:
                if rules.may_include_below(path, own_verdict):
                    folders.append(name)
                    below.append((source, path, own_verdict))
            elif own_verdict.ignored:
                continue
            # Only a rule that matches the file itself includes a secret.
            elif own_verdict is verdict and looks_secret(
                f"{above}/{path}", source if is_ours else ""
            ):
                left_out.append(path)
            elif not (outputs and own_verdict is verdict and _is_one_of(details, outputs)):
                files[name] = details
        yield folder, relative, folders, files
        pending += reversed(below)


def _entries(folder: str) -> Iterable[tuple[str, bool, str, Any]]:
    """Return name, whether it is a folder, path and details of each entry of a folder."""
    with os.scandir(folder) as scan:
        return [(e.name, e.is_dir(follow_symlinks=False), e.path, e) for e in scan]


def _fsspec_entries(fs: AbstractFileSystem, folder: str) -> Iterable[tuple[str, bool, str, Any]]:
    for info in fs.ls(folder, detail=True):
        source = str(info["name"]).rstrip("/")
        if source.strip("/") != folder.strip("/"):  # the marker of the folder in object stores
            yield source.rpartition("/")[2], info["type"] == "directory", source, info


def is_local(fs: AbstractFileSystem) -> bool:
    """Return True if an fsspec file system is this machine's."""
    protocol = fs.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def read_error(path: str, error: OSError) -> WorkspaceError:
    """Return the error for a file or folder of a workspace that cannot be read."""
    return WorkspaceError(
        f"cannot read {path} of the workspace: {error.strerror or error};"
        f" make it readable, or exclude it in {TORCHX_IGNORE}"
    )


def _output_files() -> set[tuple[int, int]]:
    """Return device and inode of the regular files to which this process writes its output."""
    found: set[tuple[int, int]] = set()
    for descriptor in (1, 2):
        try:
            status = os.fstat(descriptor)
        except OSError:  # The stream is closed.
            continue
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
    return found


def _is_one_of(entry: Any, files: set[tuple[int, int]]) -> bool:
    """Return True if an entry of a folder is one of the files with these devices and inodes."""
    inode = entry.inode()
    if all(inode != number for _, number in files):
        return False
    try:
        return (entry.stat(follow_symlinks=False).st_dev, inode) in files
    except OSError:
        return False
