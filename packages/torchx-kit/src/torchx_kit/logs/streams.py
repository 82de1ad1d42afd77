"""Growing files: copying whole lines of several into one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from io import FileIO

BLOCK_BYTES = 1 << 18
_POLL_SECONDS = (0.01, 0.2)


class GrowingFile:
    """Hands on the whole lines of a file as it grows, however long they are, with little memory.

    An unfinished line stays in the file: only where it begins is remembered.

    Attributes:
        copied: bytes handed on so far, whole lines (unless :meth:`copy_rest` was called)
    """

    def __init__(self, path: str, copied: int = 0) -> None:
        self.path = path
        self.copied = copied
        self._searched = copied

    def copy_lines(self, write: Callable[[bytes], object]) -> bool:
        """Hands every new whole line to ``write``, in blocks; returns True if there was any.

        If ``write`` raises, what it was given last counts as not handed on. A file that was cut off
        begins anew.

        Raises:
            OSError: the file cannot be read (a missing file is no error)
        """
        size = _size(self.path)
        if size < self._searched:
            self.copied = self._searched = 0 if size < self.copied else self.copied
        if size <= self._searched:
            return False
        before = self.copied
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while block := os.pread(fd, BLOCK_BYTES, self._searched):
                end = block.rfind(b"\n") + 1
                if end:
                    self._copy_until(fd, self._searched, write)
                    write(block if end == len(block) else block[:end])
                    self.copied = self._searched + end
                self._searched += len(block)
        finally:
            os.close(fd)
        return self.copied > before

    def copy_rest(self, write: Callable[[bytes], object]) -> bool:
        """Hands on all that is left, an unfinished line too; returns True if there was any."""
        size = _size(self.path)
        if size <= self.copied:
            return False
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._copy_until(fd, size, write)
        finally:
            os.close(fd)
        self._searched = self.copied
        return True

    def has_changed(self) -> bool:
        """Returns True if the file holds something else than what was handed on."""
        return _size(self.path) != self.copied

    def has_rest(self) -> bool:
        """Returns True if the file holds more than was handed on."""
        return _size(self.path) > self.copied

    def _copy_until(self, fd: int, end: int, write: Callable[[bytes], object]) -> None:
        while self.copied < end:
            block = os.pread(fd, min(BLOCK_BYTES, end - self.copied), self.copied)
            if not block:
                return
            write(block)
            self.copied += len(block)


class LineMerger:
    """Merges growing files into one file by whole lines.

    Args:
        sources: the files
        write: appends bytes to the merged file, all of them or (raising) none
    """

    def __init__(self, sources: list[GrowingFile], write: Callable[[bytes], object]) -> None:
        self.sources = sources
        self._write = write

    def merge(self) -> bool:
        """Appends what is new; returns True if there was any whole line."""
        new = [source for source in self.sources if source.has_changed()]
        if len(new) > 1:
            # nobody recorded which line came first; what was written last comes last
            new.sort(key=lambda source: _modified(source.path))
        found = False
        for source in new:
            found |= source.copy_lines(self._write)
        return found

    def finish(self) -> None:
        """Appends all that is left; unfinished lines come last, each on a line of its own."""
        self.merge()
        rest = [source for source in self.sources if source.has_rest()]
        for i, source in enumerate(rest):
            source.copy_rest(self._write)
            if i + 1 < len(rest):
                self._write(b"\n")


class Tee:
    """Copies the lines of several growing files into one, in a thread, until it is closed.

    Args:
        out: the file to write to; :meth:`close` does not close it
        sources: paths of the files to read; they may appear later
    """

    def __init__(self, out: FileIO, *sources: str) -> None:
        if not sources:
            raise ValueError("Tee needs at least one file to read")
        self.out = out
        self._merger = LineMerger([GrowingFile(path) for path in sources], self.write)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torchx-tee", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Writes bytes to the merged file."""
        with self._lock:
            write_all(self.out.fileno(), data)

    def close(self) -> None:
        """Copies what is left and ends the thread; may be called more than once."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        quickest, slowest = _POLL_SECONDS
        pause = quickest
        while not self._closed.wait(pause):
            pause = quickest if self._merger.merge() else min(pause * 1.5, slowest)
        self._merger.finish()


def write_all(fd: int, data: bytes) -> None:
    """Writes all of ``data``, however many calls it takes.

    Raises:
        OSError: it cannot be written; part of it may have been
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _modified(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
