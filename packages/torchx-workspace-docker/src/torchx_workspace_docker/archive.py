"""Tar archives of workspaces: the same files always give the same bytes."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Mapping

from torchx_kit.workspace import WorkspaceFile
from torchx_specs.errors import WorkspaceError

#: The modes of those folders that have another mode than ``_FOLDER_MODE`` in most images.
_FOLDER_MODES = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700}
_FOLDER_MODE = 0o755
_FILE_MODE = 0o644


def tar_chunks(
    files: Iterable[WorkspaceFile], root: str, extra: Mapping[str, bytes] | None = None
) -> Iterator[bytes]:
    """Yield a tar archive; the bytes depend on paths, modes, contents and links, not on times.

    Args:
        files: The files, ordered by path.
        root: The folder of the archive in which to put the files; empty for the top.
        extra: Contents of more files by path in the archive; they come first.

    Raises:
        WorkspaceError: A file cannot be read, or changes while it is read.
    """
    size = 0
    for header, content, length in _members(files, root, extra or {}):
        yield header
        if content is not None:
            yield from content
            yield _padding(length)
        size += len(header) + length + len(_padding(length))
    yield _end(size)


def tar_size(files: Iterable[WorkspaceFile], root: str) -> int:
    """Return the size of the archive that :func:`tar_chunks` yields without ``extra``, in bytes."""
    size = 0
    for header, _, length in _members(files, root, {}):
        size += len(header) + length + len(_padding(length))
    return size + len(_end(size))


def tar_header(path: str, size: int) -> bytes:
    """Return the header that precedes the content of a file in an archive."""
    return _header(tarfile.TarInfo(path), _FILE_MODE, size)


def _members(
    files: Iterable[WorkspaceFile], root: str, extra: Mapping[str, bytes]
) -> Iterator[tuple[bytes, Iterable[bytes] | None, int]]:
    """Yield for each member its header, its content (None for folders and links) and its length."""
    prefix = root.strip("/")
    written: set[str] = set()
    for name, data in extra.items():
        yield tar_header(name, len(data)), (data,), len(data)
    for folder in _new_parents(f"{prefix}/x" if prefix else "x", written):
        yield _folder_header(folder), None, 0
    for entry in files:
        path = f"{prefix}/{entry.path}" if prefix else entry.path
        for folder in _new_parents(path, written):
            yield _folder_header(folder), None, 0
        info, mode = tarfile.TarInfo(path), entry.mode & 0o777
        if entry.link is not None:
            info.type, info.linkname = tarfile.SYMTYPE, entry.link
            yield _header(info, mode), None, 0
        else:
            yield _header(info, mode, entry.size), _content(entry), entry.size


def _header(info: tarfile.TarInfo, mode: int, size: int = 0) -> bytes:
    info.mode, info.size = mode, size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _folder_header(path: str) -> bytes:
    info = tarfile.TarInfo(f"{path}/")
    info.type = tarfile.DIRTYPE
    return _header(info, _FOLDER_MODES.get(path, _FOLDER_MODE))


def _padding(length: int) -> bytes:
    return b"\0" * (-length % tarfile.BLOCKSIZE)


def _end(size: int) -> bytes:
    end = 2 * tarfile.BLOCKSIZE
    return b"\0" * (end + -(size + end) % tarfile.RECORDSIZE)


def _content(entry: WorkspaceFile) -> Iterator[bytes]:
    """Yield the content of a file; raise an error if the size differs from the header."""
    left = entry.size
    for chunk in entry.chunks():
        left -= len(chunk)
        if left < 0:
            break
        yield chunk
    if left:
        raise WorkspaceError(f"{entry.source} has changed while it was read; try again")


def _new_parents(path: str, written: set[str]) -> Iterator[str]:
    """Yield the folders above a path that are not in ``written``, and add them to ``written``."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in written:
            written.add(folder)
            yield folder
