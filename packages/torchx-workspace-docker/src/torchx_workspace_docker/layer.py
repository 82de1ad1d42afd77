"""A workspace as layers of an image: the same files always give the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from torchx_kit.workspace import FileDigests, WorkspaceFile
from torchx_specs.errors import WorkspaceError

#: Folders of an image that do not have the mode of all others.
_MODES = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700}
_FOLDER_MODE = 0o755
#: Fast; what it saves over none goes over the network.
_LEVEL = 1
#: As large as the pieces in which files are read.
_PIECE = 1 << 20
_THREADS = min(os.cpu_count() or 1, 4)
_SAMPLE = 16 << 10
_WORTHWHILE = 0.95
#: Changed whenever the same files give other layers.
LAYER_FORMAT = "1"
#: Workspaces larger than this are several layers, up to that many.
_LAYER_SIZE = 16 << 20
_MOST_LAYERS = 8


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


def tar_pieces(
    files: Iterable[WorkspaceFile], root: str, more: Mapping[str, bytes] | None = None
) -> Iterator[bytes]:
    """Yields a tar archive without times, owners or order of this machine.

    Args:
        files: ordered by path
        root: the folder of the image they go to
        more: content of further files, by their paths in the archive

    Raises:
        WorkspaceError: a file cannot be read, or changes meanwhile
    """
    size = 0
    for header, content, length in _members(files, root, more or {}):
        yield header
        if content is not None:
            yield from content
            yield _padding(length)
        size += len(header) + length + len(_padding(length))
    yield _end(size)


def tar_size(files: Iterable[WorkspaceFile], root: str) -> int:
    """Returns the size of the archive that :func:`tar_pieces` yields, in bytes."""
    size = 0
    for header, _, length in _members(files, root, {}):
        size += len(header) + length + len(_padding(length))
    return size + len(_end(size))


def tar_header(path: str, size: int) -> bytes:
    """Returns what stands before the content of a file in an archive."""
    return _header(tarfile.TarInfo(path), 0o644, size)


def write_tar(
    files: Iterable[WorkspaceFile],
    root: str,
    out: IO[bytes] | io.RawIOBase,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Writes what :func:`tar_pieces` yields.

    Raises:
        WorkspaceError: a file cannot be read, or changes meanwhile
    """
    for piece in tar_pieces(files, root, more):
        out.write(piece)


def make_layer(
    files: Iterable[WorkspaceFile],
    root: str,
    path: str,
    progress: Callable[[int], None] = lambda done: None,
) -> Layer:
    """Writes a layer to a file, compressed by gzip.

    Args:
        files: ordered by path
        root: the folder of the image they go to
        path: the file
        progress: is told how many bytes of content were taken in

    Raises:
        WorkspaceError: a file cannot be read, or the layer not be written
    """
    try:
        with (
            open(path, "wb") as file,
            contextlib.closing(_Sink(file, progress)) as sink,
        ):
            write_tar(files, root, sink)
            return sink.finish(path)
    except OSError as e:
        raise WorkspaceError(
            f"cannot write the layer {path}: {e.strerror or e}; TMPDIR says where it goes"
        ) from None


def layers_of(files: Iterable[WorkspaceFile]) -> list[list[WorkspaceFile]]:
    """Distributes files over layers: a large workspace becomes several, so that after a small
    change one of them is another.

    Where a file goes depends on its path, and on about how large the whole is.
    """
    files = list(files)
    total = sum(entry.size for entry in files)
    count = 1
    while count < _MOST_LAYERS and total > count * _LAYER_SIZE:
        count *= 2
    layers: list[list[WorkspaceFile]] = [[] for _ in range(count)]
    for entry in files:
        name = entry.path.encode("utf-8", "surrogateescape")
        layers[zlib.crc32(name) % count].append(entry)
    return [layer for layer in layers if layer] or [[]]


def listing(files: Iterable[WorkspaceFile], digests: FileDigests) -> dict[str, str]:
    """Returns what goes into a layer, as it was found: of each path mode and digest, or where a
    link leads."""
    entries = list(files)
    return {
        entry.path: f"{entry.mode & 0o777:o} {content.hex()}"
        if entry.link is None
        else f"-> {entry.link}"
        for entry, content in zip(entries, digests.digests(entries, just_found=True), strict=True)
    }


def _members(
    files: Iterable[WorkspaceFile], root: str, more: Mapping[str, bytes]
) -> Iterator[tuple[bytes, Iterable[bytes] | None, int]]:
    """Yields header, content and its length of everything in an archive."""
    prefix = root.strip("/")
    made: set[str] = set()
    for name, data in more.items():
        yield tar_header(name, len(data)), (data,), len(data)
    for folder in _folders_above(f"{prefix}/x" if prefix else "x", made):
        yield _folder_header(folder), None, 0
    for entry in files:
        path = f"{prefix}/{entry.path}" if prefix else entry.path
        for folder in _folders_above(path, made):
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


def _padding(length: int) -> bytes:
    return b"\0" * (-length % tarfile.BLOCKSIZE)


def _end(size: int) -> bytes:
    end = 2 * tarfile.BLOCKSIZE
    return b"\0" * (end + -(size + end) % tarfile.RECORDSIZE)


def _content(entry: WorkspaceFile) -> Iterator[bytes]:
    """Yields the content of a file, of exactly the size that was announced."""
    left = entry.size
    for chunk in entry.chunks():
        left -= len(chunk)
        if left < 0:
            break
        yield chunk
    if left:
        raise WorkspaceError(f"{entry.source} changes while it is read; try again")


def _folders_above(path: str, made: set[str]) -> Iterator[str]:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in made:
            made.add(folder)
            yield folder


def _folder_header(path: str) -> bytes:
    info = tarfile.TarInfo(f"{path}/")
    info.type = tarfile.DIRTYPE
    return _header(info, _MODES.get(path, _FOLDER_MODE))


class _Sink(io.RawIOBase):
    """Compresses and digests what is written to it.

    Blocks are compressed each for itself, in threads: a gzip file may have any number of members.
    What would not get smaller is only wrapped.
    """

    def __init__(self, file: IO[bytes], progress: Callable[[int], None]) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(_THREADS)
        self._pending: deque[Future[bytes]] = deque()
        self._block = bytearray()
        self._plain = hashlib.sha256()
        self._stored = hashlib.sha256()
        self._size = 0
        self._progress = progress

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._plain.update(data)
        self._block += data
        while len(self._block) >= _PIECE:
            self._compress(bytes(self._block[:_PIECE]))
            del self._block[:_PIECE]
        self._progress(len(data))
        return len(data)

    def _compress(self, block: bytes) -> None:
        self._pending.append(self._pool.submit(_gzip_member, block))
        if len(self._pending) > 2 * _THREADS:
            self._store(self._pending.popleft().result())

    def _store(self, data: bytes) -> None:
        self._stored.update(data)
        self._size += len(data)
        self._file.write(data)

    def finish(self, path: str) -> Layer:
        if self._block:
            self._compress(bytes(self._block))
        for pending in self._pending:
            self._store(pending.result())
        self._file.flush()
        digests = (f"sha256:{known.hexdigest()}" for known in (self._stored, self._plain))
        return Layer(path, self._size, *digests)

    def close(self) -> None:
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
