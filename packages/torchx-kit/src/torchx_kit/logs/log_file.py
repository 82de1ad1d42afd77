"""Reading an open log file by whole lines."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator

from torchx_specs.schedulers.api import split_lines

BLOCK_BYTES = 1 << 16


class LogFile:
    """A log that is open, and how far it was read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._held = bytearray()  # the beginning of an unfinished line
        self.position = 0

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def open(self, position: int) -> bool:
        """Opens the log at ``position`` unless it is open; returns False if there is none."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            self.position = position
        return True

    def refresh(self) -> None:
        """Makes what another machine has written visible, on a shared file system.

        NFS keeps for seconds what it knows of an open file, or of one that isn't there; opening a
        file, or its folder, asks the server anew.
        """
        try:
            if self._fd < 0:
                os.scandir(os.path.dirname(self._path) or ".").close()
                return
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # whoever reads it tells of it
        if os.path.sameopenfile(fd, self._fd):
            fd, self._fd = self._fd, fd
        os.close(fd)

    def size(self) -> int:
        """Returns the size of the log as it is now."""
        try:
            return os.stat(self._path).st_size
        except FileNotFoundError:
            return 0

    def lines(self, limit: int | None) -> Iterator[Iterable[str]]:
        """Returns the whole lines up to ``limit``, or up to the end as it is now, in blocks."""
        fd = self._fd
        size = BLOCK_BYTES
        while limit is None or (size := min(BLOCK_BYTES, limit - self.position)) > 0:
            block = os.pread(fd, size, self.position)
            if not block:
                return
            self.position += len(block)
            end = block.rfind(b"\n") + 1
            if not end:
                self._held += block
                continue
            if self._held:
                self._held += block[:end]
                text = self._held.decode("utf-8", "replace")
                self._held = bytearray()
            else:
                text = block[:end].decode("utf-8", "replace")
            if end < len(block):
                self._held += block[end:]
            # StringIO splits at "\n" only, and at C speed, but holds four bytes a character
            yield io.StringIO(text, newline="\n") if len(text) < 1 << 20 else split_lines(text)

    def rest(self) -> Iterator[Iterable[str]]:
        """Returns the unfinished last line, if there is one."""
        if self._held:
            line = self._held.decode("utf-8", "replace")
            self._held = bytearray()
            yield (line,)

    def was_replaced(self) -> bool:
        """Returns True if the path names another file by now, or the file was cut off."""
        if os.fstat(self._fd).st_size < self.position:
            return True
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return False  # between the two steps of a rotation, or removed
        mine = os.fstat(self._fd)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        self.position = 0
        if fd >= 0:
            os.close(fd)
