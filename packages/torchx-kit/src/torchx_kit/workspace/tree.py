"""The files of a whole workspace, and a digest of them: what builders start from."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

from torchx_kit.workspace.digests import stamp_of
from torchx_kit.workspace.ignore import TORCHX_IGNORE, IgnoreRules
from torchx_kit.workspace.walk import (
    is_local,
    read_ignore_rules,
    unreadable,
    walk_fsspec,
    walk_local,
)
from torchx_specs.errors import WorkspaceError

if TYPE_CHECKING:
    from io import FileIO

    from fsspec import AbstractFileSystem

    from torchx_kit.workspace.digests import FileDigests
    from torchx_specs.workspace.spec import Workspace

_DEFAULT_MODE = 0o644
_LINK_MODE = 0o777
_CHUNK = 1 << 20


class WorkspaceFile(NamedTuple):
    """A file, or a symbolic link, that a job takes along."""

    path: str
    """Where it goes: relative to the root of the workspace, with ``/``."""
    source: str
    """Where it is, on ``fs``."""
    size: int
    """In bytes; 0 for a link."""
    mode: int
    """Permission bits."""
    link: str | None = None
    """What a link that stays a link points to, relative to its folder; None for a file."""
    fs: AbstractFileSystem | None = None
    """The file system of ``source``, None for this machine's."""
    stamp: bytes = b""
    """What this machine's file system said of a file when it was found; see
    :mod:`torchx_kit.workspace.digests`."""

    def chunks(self) -> Iterator[bytes]:
        """Yields the content in pieces of at most 1 MiB.

        Raises:
            WorkspaceError: it cannot be read
        """
        try:
            with _open(self) as fp:
                left = self.size  # what is asked for is set aside: for small files, not a whole MiB
                while chunk := fp.read(min(_CHUNK, max(left, 0) + 1)):
                    left -= len(chunk)
                    yield chunk
        except OSError as e:
            raise unreadable(self.source, e) from None


def _open(entry: WorkspaceFile) -> IO[bytes] | FileIO:
    if entry.fs is None:
        return open(entry.source, "rb", buffering=0)  # small files are read in one call
    opened: IO[bytes] = entry.fs.open(entry.source, "rb")
    return opened


def workspace_files(
    workspace: Workspace, ignore_name: str | Sequence[str] = TORCHX_IGNORE
) -> list[WorkspaceFile]:
    """Returns everything a workspace consists of, ordered by path.

    Each project follows the ignore file in its own root, and the ignore file of a project that
    becomes the root of the workspace counts for all of it. Of two files with one path, the later
    project's is taken. Empty folders stay behind.

    A symbolic link to a place inside its project stays a link, relative; one to a file outside is
    replaced by that file. Links to nowhere outside, sockets, pipes and devices stay behind, with a
    warning.

    Args:
        workspace: local paths or fsspec URLs, and where they go
        ignore_name: name of the ignore file; of several, the rules add up in that order

    Raises:
        WorkspaceError: a project does not exist, something cannot be read, or a link leads to a
            folder outside
    """
    found: dict[str, WorkspaceFile] = {}
    whole = IgnoreRules()
    for source, target in workspace.projects.items():
        fs, root = open_project(source)
        prefix = _checked_target(source, target)
        if fs is None and not os.path.isdir(root):
            # the name of a single file is the target's, or its own
            entries: Iterable[WorkspaceFile] = [_local_file(prefix or os.path.basename(root), root)]
        elif fs is not None and fs.isfile(root):
            name = prefix or posixpath.basename(root)
            entries = [_fsspec_file(name, fs, fs.info(root))]
        else:
            rules = read_ignore_rules(fs, root, ignore_name)
            if not prefix:
                whole = rules
            entries = _local_files(root, rules) if fs is None else _fsspec_files(fs, root, rules)
            if prefix:
                entries = (entry._replace(path=f"{prefix}/{entry.path}") for entry in entries)
        for entry in entries:
            found[entry.path] = entry
    paths = sorted(found)
    if whole and len(workspace.projects) > 1:
        paths = [path for path in paths if not whole.ignores(path)]
    return [found[path] for path in paths]


def tree_digest(
    files: Iterable[WorkspaceFile],
    digests: FileDigests | None = None,
    *,
    just_found: bool = False,
) -> str:
    """Returns the SHA-256 of a tree in hexadecimal.

    Of paths, contents, executable bits and links; times and owners make no difference.

    Args:
        files: the tree
        digests: what is known of the files' contents; without it, every file is read
        just_found: what the file system said when they were found is new enough

    Raises:
        WorkspaceError: a file cannot be read
    """
    import hashlib

    from torchx_kit.workspace.digests import FileDigests

    known = FileDigests() if digests is None else digests
    entries = list(files)
    tree = hashlib.sha256()
    for entry, content in zip(entries, known.digests(entries, just_found=just_found), strict=True):
        path = entry.path.encode("utf-8", "surrogateescape")
        if entry.link is not None:
            kind, content = b"link", entry.link.encode("utf-8", "surrogateescape")
        else:
            kind = b"exec" if entry.mode & 0o111 else b"file"
        # lengths keep the end of one entry from passing for the beginning of the next
        tree.update(b"%s %d %d\n%s%s" % (kind, len(path), len(content), path, content))
    return tree.hexdigest()


def open_project(source: str) -> tuple[AbstractFileSystem | None, str]:
    """Returns the file system of a project (None for this machine), and its path there.

    Args:
        source: a local path or an fsspec URL

    Raises:
        WorkspaceError: there is nothing at ``source``, or fsspec is missing or does not know its
            protocol
    """
    protocol, separator, rest = source.partition("://")
    if not separator or protocol in ("file", "local"):
        path = os.path.abspath(os.path.expanduser(rest if separator else source))
        if not os.path.exists(path):
            raise WorkspaceError(
                f"workspace does not exist: {source}" + (f" ({path})" if path != source else "")
            )
        return None, path
    try:
        import fsspec
    except ImportError:
        raise WorkspaceError(
            f"workspace '{source}' is a URL, which needs fsspec: pip install 'torchx-specs[fsspec]'"
        ) from None
    try:
        fs, path = fsspec.core.url_to_fs(source)
        if is_local(fs):
            return open_project(path)
        exists = fs.exists(path)
    except (ImportError, ValueError, OSError) as e:
        raise WorkspaceError(f"workspace '{source}' cannot be opened: {e}") from None
    if not exists:
        raise WorkspaceError(f"workspace does not exist: {source}")
    return fs, path


def _checked_target(source: str, target: str) -> str:
    """Returns ``target`` as a relative path with ``/``, empty for the root of the workspace."""
    normalized = posixpath.normpath(target) if target else "."
    if normalized.startswith("/") or normalized.split("/")[0] == "..":
        raise WorkspaceError(
            f"workspace project {source} goes to '{target}', which is not below the workspace:"
            " give a relative path without '..'"
        )
    return "" if normalized == "." else normalized


def _local_files(root: str, rules: IgnoreRules) -> Iterator[WorkspaceFile]:
    real_root = os.path.realpath(root)
    for _, relative, _, entries in walk_local(root, rules):
        prefix = f"{relative}/" if relative else ""
        for entry in entries:
            path = prefix + entry.name
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as e:
                raise unreadable(entry.path, e) from None
            mode = status.st_mode
            if stat.S_ISREG(mode):
                yield _regular(path, entry.path, status)
            elif stat.S_ISLNK(mode):
                kept = _link(path, entry.path, real_root, rules)
                if kept is not None:
                    yield kept
            else:
                _stays_behind(entry.path, "is neither a file nor a folder")


def _link(path: str, source: str, real_root: str, rules: IgnoreRules) -> WorkspaceFile | None:
    target = os.path.realpath(source)
    is_file = os.path.isfile(target)
    below = real_root.rstrip("/") + "/"
    if target == real_root or target.startswith(below):
        inside = target[len(below) :]
        # a file that is left out is none in the copy: a link to it takes its content along, as one
        # to outside does
        if not (is_file and rules.ignores(inside)):
            link = os.path.relpath(inside or ".", os.path.dirname(path) or ".")
            return WorkspaceFile(path, source, 0, _LINK_MODE, link=link)
    if is_file:
        return _local_file(path, target)
    if os.path.isdir(target):
        raise WorkspaceError(
            f"{source} leads out of the workspace, to the folder {target}:"
            f" name it in {TORCHX_IGNORE}, or make that folder a project of the workspace"
        )
    what = "is neither a file nor a folder" if os.path.lexists(target) else "does not exist"
    _stays_behind(source, f"leads to {target}, which {what}")
    return None


def _local_file(path: str, source: str) -> WorkspaceFile:
    try:
        status = os.stat(source)
    except OSError as e:
        raise unreadable(source, e) from None
    return _regular(path, source, status)


def _regular(path: str, source: str, status: os.stat_result) -> WorkspaceFile:
    mode = stat.S_IMODE(status.st_mode)
    return WorkspaceFile(path, source, status.st_size, mode, stamp=stamp_of(status))


def _fsspec_files(fs: AbstractFileSystem, root: str, rules: IgnoreRules) -> Iterator[WorkspaceFile]:
    for _, relative, _, files in walk_fsspec(fs, root, rules):
        for name, info in files.items():
            if info["type"] == "file":
                yield _fsspec_file(f"{relative}/{name}" if relative else name, fs, info)
            else:
                _stays_behind(info["name"], "is neither a file nor a folder")


def _fsspec_file(path: str, fs: AbstractFileSystem, info: dict[str, object]) -> WorkspaceFile:
    mode = info.get("mode")
    size = info.get("size")
    return WorkspaceFile(
        path,
        str(info["name"]),
        size if isinstance(size, int) else 0,
        stat.S_IMODE(mode) if isinstance(mode, int) and mode else _DEFAULT_MODE,
        fs=fs,
    )


def _stays_behind(source: str, why: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s %s; it does not go with the workspace", source, why)
