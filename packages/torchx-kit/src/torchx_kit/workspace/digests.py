"""A cache of file digests, so that an unchanged file is not read again.

The key of a digest is the file's status: device, inode, size, and the times of the last change of
its content and of its status. A change of the file changes one of the times, unless two changes
happen within one tick of the file system's clock. So a digest is only cached if the file was older
than :data:`RACY_SECONDS` when it was read (git does the same).
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from torchx_kit.cache_files import read_cached, write_cached
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.workspace.walk import read_error
from torchx_specs.errors import WorkspaceError

if TYPE_CHECKING:
    from io import FileIO

    from torchx_kit.workspace.tree import WorkspaceFile
    from torchx_specs.workspace.spec import Workspace

#: The least age of a file whose digest is cached, in seconds.
RACY_SECONDS = 2.0
#: The largest number of cached digests of one workspace, of 72 bytes each (14 MB).
MAX_FILES = 200_000
#: The largest number of workspaces with a cache; the oldest caches are deleted.
MAX_WORKSPACES = 64

_KIND = "digests"
_STAT_KEY = struct.Struct("<QQQqq")
# The status of a file, and the SHA-256 of its content.
_RECORD = _STAT_KEY.size + 32
_CHUNK = 1 << 20
#: Several threads read the files if they have at least this many bytes, in total and on average.
_MIN_PARALLEL_TOTAL = 8 << 20
_MIN_PARALLEL_AVERAGE = 512 << 10


class FileDigests:
    """The digests of a workspace's files, with a cache.

    Only :meth:`save` writes the cache, and replaces it as a whole, so that any number of processes
    may use it at the same time.

    Args:
        key: Identifies the cache in :mod:`torchx_kit.cache_files`; empty keeps the digests in
            memory only.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key
        self._known = _read_cache(key) if key else {}
        self._used: dict[bytes, bytes] = {}
        self._changed = False

    @classmethod
    def for_workspace(cls, workspace: Workspace) -> FileDigests:
        """Return the digests cached for a workspace, in ``$TORCHX_HOME/cache/digests``."""
        sources = sorted(os.path.abspath(os.path.expanduser(s)) for s in workspace.projects)
        return cls("\0".join(sources))

    def digests(self, entries: Sequence[WorkspaceFile]) -> list[bytes]:
        """Return the SHA-256 of each file's content, empty bytes for a link.

        A file is read unless its digest is cached for the status that the file had when it was
        listed. Files that are not on this machine are always read. Several threads read large
        files.

        Raises:
            WorkspaceError: A file cannot be read.
        """
        found = [self._cached(entry.stat_key) for entry in entries]
        unread = [i for i, e in enumerate(entries) if not found[i] and e.link is None]
        files = [entries[i] for i in unread]
        read: Iterable[bytes] = map(self._read, files)
        size = sum(file.size for file in files)
        if size >= max(_MIN_PARALLEL_TOTAL, len(files) * _MIN_PARALLEL_AVERAGE):
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
                read = list(pool.map(self._read, files))
        for i, digest in zip(unread, read, strict=True):
            found[i] = digest
        return found

    def _cached(self, key: bytes) -> bytes:
        """Return a cached digest, or empty bytes."""
        known = self._known.get(key, b"")
        if known:
            self._used[key] = known
        return known

    def _read(self, entry: WorkspaceFile) -> bytes:
        import hashlib

        digest = hashlib.sha256()
        if entry.fs is not None:
            for chunk in entry.chunks():
                digest.update(chunk)
            return digest.digest()
        try:
            with open(open_listed(entry.source), "rb", buffering=0) as file:
                # Take the time first, so that a change while the file is read counts as recent.
                now = time.time()
                before = os.fstat(file.fileno())
                for chunk in read_chunks(file, before.st_size):
                    digest.update(chunk)
                key = stat_key(before)
                same = stat_key(os.fstat(file.fileno())) == key
        except OSError as e:
            raise read_error(entry.source, e) from None
        found = digest.digest()
        if same and max(before.st_mtime, before.st_ctime) + RACY_SECONDS < now:
            self._known[key] = self._used[key] = found
            self._changed = True
        return found

    def save(self) -> None:
        """Write the digests that were queried with this object to the cache.

        If the folder is not writable, the cache stays unchanged without an error.
        """
        if not self._key or not self._changed:
            return
        kept = itertools.islice(self._used.items(), MAX_FILES)
        data = b"".join(key + digest for key, digest in kept)
        write_cached(_KIND, self._key, data, MAX_WORKSPACES)


def read_chunks(file: IO[bytes] | FileIO, left: int) -> Iterator[bytes]:
    """Yield the content of a file, which had ``left`` bytes when it was listed."""
    # read() allocates as much memory as the requested size. So request no more than the rest of
    # the file, and one byte to notice a file that has grown.
    while chunk := file.read(min(_CHUNK, left + 1) if left >= 0 else _CHUNK):
        left -= len(chunk)
        yield chunk


def open_listed(source: str) -> int:
    """Open a file of this machine that a walk has listed, and return its descriptor.

    Raises:
        WorkspaceError: Somebody has replaced the file by a link, which may lead out of the
            workspace.
        OSError: The file cannot be opened, or it is not a regular file.
    """
    try:
        return open_regular(source, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.EMLINK):
            raise WorkspaceError(
                f"{source} was replaced by a symbolic link while the workspace was read; try again"
            ) from None
        raise


def stat_key(status: os.stat_result) -> bytes:
    """Return the fields of a file's status that change with its content, as bytes."""
    return _STAT_KEY.pack(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _read_cache(key: str) -> dict[bytes, bytes]:
    data = read_cached(_KIND, key)
    middle = _STAT_KEY.size
    return {
        data[at : at + middle]: data[at + middle : at + _RECORD]
        for at in range(0, len(data), _RECORD)
    }
