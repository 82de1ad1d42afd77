"""Digests of files that are remembered, so that a file that did not change is not read again.

A digest is kept under what the file system says of the file: device, inode, size, and the times of
the last change of its content and of its details. A file that changes keeps none of the two times,
unless it changes twice within one tick of the file system's clock: so a digest is only kept if the
file was older than :data:`RACY_SECONDS` when it was read.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_kit.workspace.walk import unreadable
from torchx_specs.home import home_path

if TYPE_CHECKING:
    from torchx_kit.workspace.tree import WorkspaceFile
    from torchx_specs.workspace.spec import Workspace

#: A digest of a file that has changed so shortly before is not kept, in seconds.
RACY_SECONDS = 2.0
#: Of so many files of one workspace digests are kept: with 72 bytes each, 14 MB.
MOST_FILES = 200_000
#: So many workspaces are remembered; those written longest ago are forgotten.
MOST_WORKSPACES = 64

_HEADER = b"torchx file digests 1\n"
_SHA256 = 32
_STAMP = struct.Struct("<QQQqq")
_RECORD = _STAMP.size + _SHA256
_CHUNK = 1 << 20
#: From so many bytes on, in files that are about as large, it pays to read in several threads.
_WORTH_THREADS = 8 << 20
_WORTH_THREADS_EACH = 512 << 10


class FileDigests:
    """The digests of a workspace's files, as far as they are known.

    Reading one changes nothing on disk; :meth:`save` does. The file is the user's own, and replaced
    as a whole, so that any number of processes may use it at the same time.

    Args:
        path: where they are kept, None to keep them in memory
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._known = _load(path) if path else {}
        self._used: dict[bytes, bytes] = {}
        self._changed = False

    @classmethod
    def of(cls, workspace: Workspace) -> FileDigests:
        """Returns what was kept, in ``$TORCHX_HOME/cache/digests``, of the files of a workspace."""
        import hashlib

        sources = sorted(os.path.abspath(os.path.expanduser(s)) for s in workspace.projects)
        name = hashlib.sha256("\0".join(sources).encode("utf-8", "surrogateescape")).hexdigest()
        return cls(home_path("cache", "digests", name[:32]))

    def digest(self, entry: WorkspaceFile) -> bytes:
        """Returns the SHA-256 of a file's content, which is read only if it may have changed.

        Raises:
            WorkspaceError: it cannot be read
        """
        import hashlib

        if entry.fs is not None:
            whole = hashlib.sha256()
            for chunk in entry.chunks():
                whole.update(chunk)
            return whole.digest()
        try:
            return self._recalled(_seen(entry)) or self._read(entry.source)
        except OSError as e:
            raise unreadable(entry.source, e) from None

    def digests(self, entries: Sequence[WorkspaceFile], *, just_found: bool = False) -> list[bytes]:
        """Returns the SHA-256 of each file's content, empty for links; what must be read is read in
        parallel.

        Args:
            entries: the files
            just_found: what the file system said when they were found is new enough

        Raises:
            WorkspaceError: a file cannot be read
        """
        found = [b""] * len(entries)
        unread = []
        for i, entry in enumerate(entries):
            if entry.link is None:
                try:
                    if entry.fs is None:
                        found[i] = self._recalled(entry.stamp if just_found else _seen(entry))
                except OSError as e:
                    raise unreadable(entry.source, e) from None
                if not found[i]:
                    unread.append(i)
        threads = 1
        if sum(entries[i].size for i in unread) >= max(
            _WORTH_THREADS, len(unread) * _WORTH_THREADS_EACH
        ):
            threads = min(os.cpu_count() or 1, 4)

        def read(first: int) -> None:
            for i in unread[first::threads]:
                found[i] = self.digest(entries[i])

        if threads == 1:
            read(0)
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(threads) as pool:
                for call in [pool.submit(read, first) for first in range(threads)]:
                    call.result()
        return found

    def _recalled(self, stamp: bytes) -> bytes:
        """Returns the digest of a file that did not change, empty if it is not known."""
        known = self._known.get(stamp, b"")
        if known:
            self._used[stamp] = known
        return known

    def _read(self, source: str) -> bytes:
        import hashlib

        digest = hashlib.sha256()
        with open(source, "rb", buffering=0) as file:
            # the time first: what changes while the file is read is then young
            now = time.time()
            before = os.fstat(file.fileno())
            left = before.st_size
            while chunk := file.read(min(_CHUNK, max(left, 0) + 1)):
                digest.update(chunk)
                left -= len(chunk)
            stamp = stamp_of(before)
            same = stamp_of(os.fstat(file.fileno())) == stamp
        found = digest.digest()
        if same and max(before.st_mtime, before.st_ctime) + RACY_SECONDS < now:
            self._known[stamp] = self._used[stamp] = found
            self._changed = True
        return found

    def save(self) -> None:
        """Keeps what was asked for, for other processes; if it cannot be kept, it is not."""
        import contextlib
        import hashlib
        import itertools

        from torchx_kit.atomic_files import write_atomically

        if self._path is None or not self._changed:
            return
        kept = itertools.islice(self._used.items(), MOST_FILES)
        body = b"".join(stamp + digest for stamp, digest in kept)
        folder = os.path.dirname(self._path)
        with contextlib.suppress(OSError):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            write_atomically(self._path, _HEADER + hashlib.sha256(body).digest() + body)
            self._changed = False
            _forget_oldest(folder)


def _seen(entry: WorkspaceFile) -> bytes:
    return stamp_of(os.stat(entry.source))


def stamp_of(status: os.stat_result) -> bytes:
    """Returns that of what the file system says of a file which changes when the file does."""
    return _STAMP.pack(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _load(path: str) -> dict[bytes, bytes]:
    """Returns what a file holds; nothing if it is not whole, or not only this user's."""
    import hashlib

    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return {}
            data = file.read()
    except OSError:
        return {}
    start = len(_HEADER) + _SHA256
    body = data[start:]
    whole = _HEADER + hashlib.sha256(body).digest()
    if data[:start] != whole or len(body) % _RECORD:
        return {}
    middle = _STAMP.size
    return {
        body[at : at + middle]: body[at + middle : at + _RECORD]
        for at in range(0, len(body), _RECORD)
    }


def _forget_oldest(folder: str) -> None:
    with os.scandir(folder) as scan:
        found = [(entry.stat().st_mtime, entry.path) for entry in scan]
    for _, path in sorted(found)[:-MOST_WORKSPACES]:
        os.unlink(path)
