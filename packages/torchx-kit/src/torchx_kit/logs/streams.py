"""Merge growing files into one file, by whole lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from io import FileIO

from torchx_kit.logs.regular_files import open_regular

BLOCK_BYTES = 1 << 18
_POLL_SECONDS = (0.01, 0.2)


class PartialWriteError(OSError):
    """Only the first ``written`` bytes could be written, for example because the disk is full."""

    written = 0


class GrowingFile:
    """A growing file, and how much of it was copied.

    Lines may have any length, because only one block is in memory at a time. An incomplete last
    line is not copied until it is complete.

    Args:
        path: The file, which may be created later.
        copied: Number of bytes at the start of the file that are not copied again.
        dir_fd: Descriptor of the folder to which a relative path is relative; None means the
            working directory.

    Attributes:
        path: The file.
        copied: How many bytes of the file were copied: whole lines, unless :meth:`copy_rest` was
            called.
    """

    def __init__(self, path: str, copied: int = 0, dir_fd: int | None = None) -> None:
        self.path = path
        self._dir_fd = dir_fd
        self.copied = copied
        self._searched = copied

    def copy_lines(self, write: Callable[[bytes], object]) -> bool:
        """Copy every new whole line, and return True if there was any.

        A truncated file is copied from its beginning. A missing file is not an error.

        Args:
            write: Called with blocks of bytes. If it raises an error, the block counts as not
                copied, except for the bytes that a :class:`PartialWriteError` reports.

        Raises:
            OSError: The file cannot be read, or is not a regular file.
        """
        size = self.size()
        if size < self._searched:
            self.copied = self._searched = 0 if size < self.copied else self.copied
        if size <= self._searched:
            return False
        before = self.copied
        fd = open_regular(self.path, os.O_RDONLY, dir_fd=self._dir_fd)
        try:
            while block := os.pread(fd, BLOCK_BYTES, self._searched):
                end = block.rfind(b"\n") + 1
                if end:
                    self._copy_until(fd, self._searched, write)
                    self._copy(block if end == len(block) else block[:end], write)
                self._searched += len(block)
        finally:
            os.close(fd)
        return self.copied > before

    def copy_rest(self, write: Callable[[bytes], object]) -> bool:
        """Copy all remaining bytes, even an incomplete line; return False if no bytes were left."""
        size = self.size()
        if size <= self.copied:
            return False
        fd = open_regular(self.path, os.O_RDONLY, dir_fd=self._dir_fd)
        try:
            self._copy_until(fd, size, write)
        finally:
            os.close(fd)
        self._searched = self.copied
        return True

    def has_changed(self) -> bool:
        """Return True if the size of the file differs from the number of copied bytes."""
        return self.size() != self.copied

    def has_rest(self) -> bool:
        """Return True if the file has bytes that were not copied."""
        return self.size() > self.copied

    def modified(self) -> int:
        """Return when the file was last written, in nanoseconds since 1970; 0 if it is missing."""
        try:
            return os.stat(self.path, dir_fd=self._dir_fd).st_mtime_ns
        except FileNotFoundError:
            return 0

    def size(self) -> int:
        """Return the size of the file in bytes, 0 if it is missing."""
        try:
            return os.stat(self.path, dir_fd=self._dir_fd).st_size
        except FileNotFoundError:
            return 0

    def _copy_until(self, fd: int, end: int, write: Callable[[bytes], object]) -> None:
        while self.copied < end:
            block = os.pread(fd, min(BLOCK_BYTES, end - self.copied), self.copied)
            if not block:
                return
            self._copy(block, write)

    def _copy(self, block: bytes, write: Callable[[bytes], object]) -> None:
        try:
            write(block)
        except PartialWriteError as e:
            self.copied += e.written
            self._searched = self.copied
            raise
        self.copied += len(block)


class LineMerger:
    """Merges growing files into one file, by whole lines.

    Args:
        sources: The files to merge.
        write: Appends bytes to the merged file. If it raises, it has appended none of them, unless
            it raises :class:`PartialWriteError`.
    """

    def __init__(self, sources: list[GrowingFile], write: Callable[[bytes], object]) -> None:
        self.sources = sources
        self._write = write

    def merge(self) -> bool:
        """Append the new whole lines, and return True if there was any."""
        new = [source for source in self.sources if source.has_changed()]
        if len(new) > 1:
            # The order in which lines were written to different files is unknown, so the file that
            # was modified last comes last.
            new.sort(key=lambda source: source.modified())
        found = False
        for source in new:
            found |= source.copy_lines(self._write)
        return found

    def finish(self) -> None:
        """Append the rest of each file; incomplete last lines come last, each on its own line."""
        self.merge()
        rest = [source for source in self.sources if source.has_rest()]
        for i, source in enumerate(rest):
            source.copy_rest(self._write)
            if i + 1 < len(rest):
                self._write(b"\n")


class Tee:
    """Copies the lines of several growing files to one file, in a thread.

    Args:
        out: The file to write to; :meth:`close` does not close it.
        sources: Paths of the files to read; the files may be created later.

    Raises:
        ValueError: No sources are given.
    """

    def __init__(self, out: FileIO, *sources: str) -> None:
        if not sources:
            raise ValueError("Tee has no files to read: give the path of at least one")
        self.out = out
        self._merger = LineMerger([GrowingFile(path) for path in sources], self.write)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torchx-tee", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Append bytes to the merged file."""
        with self._lock:
            write_all(self.out.fileno(), data)

    def close(self) -> None:
        """Copy the rest of each file and end the thread; may be called more than once."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        shortest, longest = _POLL_SECONDS
        pause = shortest
        while not self._closed.wait(pause):
            pause = shortest if self._merger.merge() else min(pause * 1.5, longest)
        self._merger.finish()


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data`` to a file descriptor, in as many calls as it takes.

    Raises:
        OSError: The data cannot be written; a part of it may have been written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
