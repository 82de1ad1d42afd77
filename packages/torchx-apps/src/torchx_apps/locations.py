"""A place on an fsspec filesystem, and writing there so that no reader meets half a file."""

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
    from typing import BinaryIO

    from fsspec import AbstractFileSystem

# Where folders are only a way to read names. Asking s3fs or gcsfs to make one makes the bucket if
# it is missing, so a typing error would not fail but create something that costs money.
_WITHOUT_FOLDERS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https"})

# Names of files that this process has open: they are written to, never replaced.
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")


class LocationError(ProgramError, ValueError):
    """A location that cannot be used, whatever is stored there."""


@dataclass(frozen=True)
class Location:
    """One path on one filesystem.

    Attributes:
        fs: The filesystem.
        path: The path on it, without protocol; absolute on a local filesystem.
    """

    fs: AbstractFileSystem
    path: str

    @classmethod
    def of(cls, url: str) -> Location:
        """Reads an fsspec location: ``data/x``, ``s3://bucket/x``, ``zip://x::/tmp/a.zip``.

        Raises:
            LocationError: It is empty, the protocol is not known, or needs a library that is not
                installed.
        """
        from fsspec.core import url_to_fs

        if not url:
            raise LocationError("the location is empty")
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
        """Whether this is a path of this machine, that ``os`` can work on."""
        return "file" in self._protocols

    @property
    def _protocols(self) -> tuple[str, ...]:
        protocol = self.fs.protocol
        return (protocol,) if isinstance(protocol, str) else tuple(protocol)

    def is_folder(self) -> bool:
        return os.path.isdir(self.path) if self.is_local else bool(self.fs.isdir(self.path))

    def make_folder(self) -> None:
        """Makes this folder and those above it, where the filesystem has folders."""
        if self.is_local:
            os.makedirs(self.path, exist_ok=True)
        elif _WITHOUT_FOLDERS.isdisjoint(self._protocols):
            self.fs.makedirs(self.path, exist_ok=True)

    def parent(self) -> Location:
        parent = os.path.dirname(self.path) if self.is_local else self.fs._parent(self.path)
        return Location(self.fs, parent)

    @contextlib.contextmanager
    def writer(self, mode: int = 0o666) -> Iterator[BinaryIO]:
        """Opens the file for writing, making folders above it; the whole of it appears at the end.

        If the body raises, a local file stays as it was. Elsewhere an upload is abandoned if the
        filesystem can do that, and what is new and incomplete is removed.

        Args:
            mode: Permission bits for a new local file, before the umask. One that replaces
                another gets the other's.
        """
        if self.is_local:
            with _local_writer(self.path, mode) as file:
                yield file
        else:
            with _remote_writer(self) as file:
                yield file


def joined(base: str, relative: str) -> str:
    """``base/relative``, where ``relative`` comes from outside and must stay below ``base``.

    >>> joined("bucket/results", "a/b")
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
    target = os.path.realpath(path)  # write through a link, rather than replace it
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    is_special = os.path.exists(target) and not os.path.isfile(target)  # a named pipe
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
    """Ends writing without completing an upload that is under way."""
    from fsspec.spec import AbstractBufferedFile

    with contextlib.suppress(Exception):
        if isinstance(file, AbstractBufferedFile):
            file.discard()
            file.closed = True  # else garbage collection closes it, which completes the upload
        else:
            file.close()


def _nearest_protocol(url: str) -> str:
    from fsspec import available_protocols

    protocol = url.partition("::")[0].partition("://")[0]
    near = difflib.get_close_matches(protocol, available_protocols(), n=1)
    return f"; did you mean {near[0]}://?" if near else ""
