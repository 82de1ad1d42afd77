"""Compressed image layers of a workspace: the same files always give the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from torchx_kit.workspace import FileDigests, WorkspaceFile
from torchx_specs.errors import WorkspaceError
from torchx_workspace_docker.archive import tar_chunks

#: Version of the layers: increase it when a change of TorchX changes the bytes of the same files.
LAYER_FORMAT = "1"
#: A workspace of more bytes than this is split into up to ``_MAX_LAYERS`` layers.
_LAYER_SIZE = 16 << 20
_MAX_LAYERS = 8
#: The fastest compression level: higher levels cost more time than they save in the transfer.
_LEVEL = 1
_BLOCK = 1 << 20
_THREADS = min(os.cpu_count() or 1, 4)
#: A block is compressed only if a sample of this many bytes shrinks below ``_MAX_RATIO``.
_SAMPLE = 16 << 10
_MAX_RATIO = 0.95
#: The ``wbits`` that make zlib write a gzip header; that header has no time and no file name.
_GZIP = 31


@dataclass(frozen=True)
class Layer:
    """A layer in a file.

    Args:
        path: The path of the file.
        size: The size of the file, in bytes.
        digest: The digest of the file, ``sha256:...``.
        diff_id: The digest of the layer before compression.
    """

    path: str
    size: int
    digest: str
    diff_id: str


def make_layer(
    files: Iterable[WorkspaceFile],
    root: str,
    path: str,
    progress: Callable[[int], None] = lambda done: None,
) -> Layer:
    """Write a layer to a file, compressed by gzip.

    Args:
        files: The files, ordered by path.
        root: The folder of the image in which to put the files.
        path: The path of the file to write.
        progress: Called with the number of bytes that were added since the previous call.

    Raises:
        WorkspaceError: A file cannot be read, or the layer cannot be written.
    """
    with (
        disk_errors(path),
        open(path, "wb") as file,
        contextlib.closing(_GzipWriter(file, progress)) as writer,
    ):
        writer.writelines(tar_chunks(files, root))
        return writer.finish(path)


def split_into_layers(files: Iterable[WorkspaceFile]) -> list[list[WorkspaceFile]]:
    """Distribute files over layers, so that a change of few files changes few layers.

    A file's layer depends on the file's path and on the number of layers, which is 1, 2, 4 or 8
    depending on the size of the workspace.
    """
    files = list(files)
    total = sum(entry.size for entry in files)
    count = 1
    while count < _MAX_LAYERS and total > count * _LAYER_SIZE:
        count *= 2
    layers: list[list[WorkspaceFile]] = [[] for _ in range(count)]
    for entry in files:
        name = entry.path.encode("utf-8", "surrogateescape")
        layers[zlib.crc32(name) % count].append(entry)
    return [layer for layer in layers if layer] or [[]]


def layer_contents(files: Iterable[WorkspaceFile], digests: FileDigests) -> dict[str, str]:
    """Return a text for each path; files with equal paths and texts give an equal layer.

    The text has the mode and digest of a file, or the target of a link.
    """
    entries = list(files)
    return {
        entry.path: f"{entry.mode & 0o777:o} {content.hex()}"
        if entry.link is None
        else f"-> {entry.link}"
        for entry, content in zip(entries, digests.digests(entries), strict=True)
    }


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Return a context with a temporary folder for layers, which is deleted at the context's end.

    Raises:
        WorkspaceError: The folder cannot be created.
    """
    with disk_errors("a temporary folder"):
        folder = tempfile.TemporaryDirectory(prefix="torchx-layer-")
    with folder as path:
        yield path


@contextlib.contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Raise every OSError as a WorkspaceError that suggests another temporary folder.

    Raises:
        WorkspaceError: An OSError was raised.
    """
    try:
        yield
    except OSError as e:
        raise WorkspaceError(
            f"cannot write {path}: {e.strerror or e}; set TMPDIR to a writable folder with more"
            " space"
        ) from None


class _GzipWriter(io.RawIOBase):
    """Compresses the written bytes, and computes the digests of both input and output.

    Threads compress each block as a separate gzip member; a gzip file may have any number of
    members. A block that would not shrink is stored without compression.
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
        while len(self._block) >= _BLOCK:
            self._compress(bytes(self._block[:_BLOCK]))
            del self._block[:_BLOCK]
        self._progress(len(data))
        return len(data)

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

    def _compress(self, block: bytes) -> None:
        self._pending.append(self._pool.submit(_gzip_member, block))
        if len(self._pending) > 2 * _THREADS:
            self._store(self._pending.popleft().result())

    def _store(self, data: bytes) -> None:
        self._stored.update(data)
        self._size += len(data)
        self._file.write(data)


def _gzip_member(block: bytes) -> bytes:
    middle = len(block) // 2
    sample = block[middle : middle + _SAMPLE]
    shrinks = len(zlib.compress(sample, _LEVEL)) < _MAX_RATIO * len(sample)
    member = zlib.compressobj(_LEVEL if shrinks else 0, zlib.DEFLATED, _GZIP)
    return member.compress(block) + member.flush()
