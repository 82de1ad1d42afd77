"""Paths on fsspec file systems, and writers whose files appear only when they are complete."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .program import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from fsspec import AbstractFileSystem

# File systems without directories. s3fs and gcsfs would create a missing bucket instead of a
# directory, so that a typing error would create a bucket, which may cost money.
_WITHOUT_FOLDERS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https"})

# Prefixes of paths of open files (/dev/stdout). Write to such a file directly; do not replace it.
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")


class LocationError(ProgramError, ValueError):
    """A URL or path that is not valid."""


@dataclass(frozen=True)
class Location:
    """A path on a file system.

    Attributes:
        fs: The file system.
        path: The path without a protocol; absolute on the local file system.
    """

    fs: AbstractFileSystem
    path: str

    @classmethod
    def of(cls, url: str) -> Location:
        """Parse an fsspec URL: ``data/x``, ``s3://bucket/x``, ``zip://x::/tmp/a.zip``.

        Raises:
            LocationError: The URL is empty, or its protocol is unknown or needs a missing library.
        """
        from fsspec.core import url_to_fs

        if not url:
            raise LocationError("the URL is empty")
        try:
            fs, path = url_to_fs(url)
        except ImportError as error:
            raise LocationError(f"{url}: {error}") from None
        except ValueError as error:
            raise LocationError(f"{url}: {error}{_nearest_protocol(url)}") from None
        return cls(fs, str(path))

    def __str__(self) -> str:
        return self.path if self.is_local else str(self.fs.unstrip_protocol(self.path))

    @property
    def is_local(self) -> bool:
        """Whether this is a path on the local file system."""
        return "file" in self._protocols

    @property
    def _protocols(self) -> tuple[str, ...]:
        protocol = self.fs.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    def is_folder(self) -> bool:
        """Return whether this is a directory."""
        return os.path.isdir(self.path) if self.is_local else bool(self.fs.isdir(self.path))

    def make_folder(self) -> None:
        """Create this directory and its parents, if the file system has directories."""
        if self.is_local:
            os.makedirs(self.path, exist_ok=True)
        elif _WITHOUT_FOLDERS.isdisjoint(self._protocols):
            self.fs.makedirs(self.path, exist_ok=True)

    def parent(self) -> Location:
        """Return the parent directory."""
        parent = os.path.dirname(self.path) if self.is_local else self.fs._parent(self.path)
        return Location(self.fs, parent)

    def writer(self, mode: int = 0o666) -> AbstractContextManager[BinaryIO]:
        """Open the file for writing; a local file appears under its name only when it is complete.

        Missing parent directories are created. If the body of the ``with`` statement raises, a
        local file stays unchanged. On other file systems, the upload is aborted if possible, and an
        incomplete file that did not exist before is removed. A named pipe, a device or an open file
        such as ``/dev/stdout`` is written directly.

        Args:
            mode: Permission bits of a new local file, before the umask. An existing file keeps its
                permission bits.
        """
        return _local_writer(self.path, mode) if self.is_local else _remote_writer(self)


def join_below(base: str, relative: str) -> str:
    """Return ``base/relative``; ``relative`` is untrusted and must stay below ``base``.

    >>> join_below("bucket/results", "a/b")
    'bucket/results/a/b'

    Raises:
        LocationError: ``relative`` is empty, absolute, or has a part ``.`` or ``..``.
    """
    parts = relative.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise LocationError(f"{relative!r} is not a path below {base or '/'}")
    return "/".join([base.rstrip("/"), *parts]) if base else relative


@contextlib.contextmanager
def _local_writer(path: str, mode: int) -> Iterator[BinaryIO]:
    target = os.path.realpath(path)  # if path is a link, replace its target, not the link
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    is_special = os.path.exists(target) and not os.path.isfile(target)  # such as a named pipe
    if is_special or path.startswith(_OPEN_FILES):
        with open(path, "wb") as file:
            yield file
        return
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, f".torchx-{os.urandom(6).hex()}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        if os.path.exists(target):
            os.chmod(part, os.stat(target).st_mode & 0o777)
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


@contextlib.contextmanager
def _remote_writer(location: Location) -> Iterator[BinaryIO]:
    fs, path = location.fs, location.path
    location.parent().make_folder()
    existed = fs.exists(path)
    file: Any = fs.open(path, "wb")
    try:
        yield file
    except BaseException:
        _abandon(file)
        if not existed:
            with contextlib.suppress(Exception):
                fs.rm_file(path)
        raise
    file.close()


def _abandon(file: Any) -> None:
    """Close a file after a failed write, without completing its upload; ignore errors."""
    from fsspec.spec import AbstractBufferedFile

    with contextlib.suppress(Exception):
        if isinstance(file, AbstractBufferedFile):
            file.discard()
            file.closed = True  # otherwise garbage collection completes the upload
        else:
            file.close()


def _nearest_protocol(url: str) -> str:
    from fsspec import available_protocols

    protocol = url.partition("::")[0].partition("://")[0]
    near = difflib.get_close_matches(protocol, available_protocols(), n=1)
    return f"; did you mean {near[0]}://?" if near else ""
