"""A workspace as one layer of an image: the same files always give the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import posixpath
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace import WorkspaceFile

#: Folders of an image that do not have the mode of all others.
_MODES = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700}
_FOLDER_MODE = 0o755
#: Fast; what it saves over none goes over the network.
_LEVEL = 1
#: As large as the pieces in which files are read.
_PIECE = 1 << 20
_THREADS = 2
_SAMPLE = 16 << 10
_WORTHWHILE = 0.95


@dataclass(frozen=True)
class Layer:
    """A layer in a file.

    Args:
        path: of the file
        size: of the file, in bytes
        digest: of the file, ``sha256:...``
        diff_id: of the layer without compression
    """

    path: str
    size: int
    digest: str
    diff_id: str


def write_tar(
    files: Iterable[WorkspaceFile],
    root: str,
    out: IO[bytes] | io.RawIOBase,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a tar archive without times, owners or order of this machine.

    Args:
        files: ordered by path
        root: the folder of the image they go to
        out: where to
        more: content of further files, by their paths in the archive

    Raises:
        WorkspaceError: a file cannot be read, or changes meanwhile
    """
    prefix = root.strip("/")
    made: set[str] = set()
    with tarfile.TarFile(
        fileobj=out,
        mode="w",
        format=tarfile.PAX_FORMAT,
        copybufsize=_PIECE,
    ) as archive:
        for name, content in (more or {}).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for folder in _folders_above(f"{prefix}/x" if prefix else "x", made):
            archive.addfile(_folder(folder))
        for entry in files:
            path = f"{prefix}/{entry.path}" if prefix else entry.path
            for folder in _folders_above(path, made):
                archive.addfile(_folder(folder))
            info = tarfile.TarInfo(path)
            info.mode = entry.mode & 0o777
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
                archive.addfile(info)
            else:
                info.size = entry.size
                archive.addfile(info, _Content(entry))


def make_layer(
    files: Iterable[WorkspaceFile],
    root: str,
    path: str,
    compressed: bool = True,
    progress: Callable[[int], None] = lambda done: None,
) -> Layer:
    """Writes a layer to a file.

    Args:
        files: ordered by path
        root: the folder of the image they go to
        path: the file
        compressed: by gzip
        progress: is told how many bytes of content were taken in

    Raises:
        WorkspaceError: a file cannot be read, or the layer not be written
    """
    try:
        with (
            open(path, "wb") as file,
            contextlib.closing(_Sink(file, compressed, progress)) as sink,
        ):
            write_tar(files, root, sink)
            return sink.finish(path)
    except OSError as e:
        raise WorkspaceError(
            f"cannot write the layer {path}: {e.strerror or e}; TMPDIR says where it goes"
        ) from None


def _folders_above(path: str, made: set[str]) -> Iterator[str]:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in made:
            made.add(folder)
            yield folder


def _folder(path: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(posixpath.normpath(path) + "/")
    info.type = tarfile.DIRTYPE
    info.mode = _MODES.get(path, _FOLDER_MODE)
    return info


class _Content(io.RawIOBase):
    """The content of a file as something to read, of exactly the size that was announced."""

    def __init__(self, entry: WorkspaceFile) -> None:
        self._entry = entry
        self._chunks = entry.chunks()
        self._rest = b""
        self._left = entry.size

    def read(self, size: int = -1) -> bytes:
        parts = []
        wanted = size
        while wanted:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    break
            # whole pieces pass by without being copied
            part = self._rest if len(self._rest) <= wanted else self._rest[:wanted]
            self._rest = self._rest[len(part) :]
            parts.append(part)
            wanted -= len(part)
        self._left -= size - wanted
        if wanted or (self._left == 0 and (self._rest or next(self._chunks, b""))):
            raise WorkspaceError(f"{self._entry.source} changes while it is read; try again")
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Sink(io.RawIOBase):
    """Compresses and digests what is written to it.

    Blocks are compressed each for itself, in threads: a gzip file may have any number of members.
    What would not get smaller is only wrapped.
    """

    def __init__(self, file: IO[bytes], compressed: bool, progress: Callable[[int], None]) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(_THREADS) if compressed else None
        self._pending: deque[Future[bytes]] = deque()
        self._block = bytearray()
        self._plain = hashlib.sha256()
        self._stored = hashlib.sha256()
        self._size = self._taken = 0
        self._progress = progress

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._plain.update(data)
        if self._pool is None:
            self._store(data)
        else:
            self._block += data
            while len(self._block) >= _PIECE:
                self._compress(self._pool, bytes(self._block[:_PIECE]))
                del self._block[:_PIECE]
        self._taken += len(data)
        self._progress(len(data))
        return len(data)

    def tell(self) -> int:
        return self._taken

    def _compress(self, pool: ThreadPoolExecutor, block: bytes) -> None:
        self._pending.append(pool.submit(_gzip_member, block))
        if len(self._pending) > 2 * _THREADS:
            self._store(self._pending.popleft().result())

    def _store(self, data: bytes) -> None:
        if self._pool is not None:
            self._stored.update(data)
        self._size += len(data)
        self._file.write(data)

    def finish(self, path: str) -> Layer:
        if self._pool is not None:
            if self._block:
                self._compress(self._pool, bytes(self._block))
            for pending in self._pending:
                self._store(pending.result())
        diff_id = f"sha256:{self._plain.hexdigest()}"
        digest = f"sha256:{self._stored.hexdigest()}" if self._pool is not None else diff_id
        self._file.flush()
        return Layer(path, self._size, digest, diff_id)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        super().close()


def _gzip_member(block: bytes) -> bytes:
    middle = len(block) // 2
    sample = block[middle : middle + _SAMPLE]
    shrinks = len(zlib.compress(sample, _LEVEL)) < _WORTHWHILE * len(sample)
    # 31: with a gzip header, which holds no time and no name
    member = zlib.compressobj(_LEVEL if shrinks else 0, zlib.DEFLATED, 31)
    return member.compress(block) + member.flush()


def layer_folder() -> str:
    """Returns a new temporary folder, for layers on their way."""
    import tempfile

    try:
        return tempfile.mkdtemp(prefix="torchx-layer-")
    except OSError as e:
        raise WorkspaceError(
            f"cannot make a temporary folder: {e.strerror or e}; set TMPDIR"
        ) from None


def remove_folder(folder: str) -> None:
    """Removes a folder of :func:`layer_folder`."""
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)
