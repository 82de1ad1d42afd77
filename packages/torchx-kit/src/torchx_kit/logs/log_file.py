"""Read a log file by whole lines, find the last lines of a file, and read unfinished lines."""

from __future__ import annotations

import io
import os
import re
import resource
from collections.abc import Iterable, Iterator

from torchx_kit.logs.lines import split_lines
from torchx_kit.logs.regular_files import open_regular
from torchx_specs.schedulers.log_items import PartialLine

BLOCK_BYTES = 1 << 16
#: Only this part of a longer line is returned, so that one line cannot use up the memory.
LONGEST_LINE_BYTES = 1 << 23
# StringIO splits lines at C speed, but needs four bytes for each character; so it gets only texts
# of fewer characters than this.
_LONGEST_STRING_IO = 1 << 20
# How many file descriptors the logs leave to other parts of the process.
_SPARE_DESCRIPTORS = 20


class LogFile:
    """A log file that is read by whole lines.

    Args:
        path: The log file.

    Attributes:
        position: How much of the file was read, in bytes.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        # Device and inode of a suspended file, to recognize it when it is opened again.
        self._suspended: tuple[int, int] | None = None
        self._incomplete_line = bytearray()
        self._skipped = 0
        # How many bytes of the incomplete line were already returned as pieces.
        self._taken = 0
        self.position = 0

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._fd >= 0

    @property
    def is_scarce(self) -> bool:
        """Whether the file has one of the last descriptors that this process may have.

        The operating system returns the lowest free number, so a high number means many open files.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return limit != resource.RLIM_INFINITY and self._fd >= limit - _SPARE_DESCRIPTORS

    def open(self, position: int) -> bool:
        """Open the file at ``position`` unless it is open, and return False if it does not exist.

        Reading of a suspended file continues where it stopped, if the path names the same file.

        Raises:
            OSError: The file cannot be opened, or is not a regular file.
        """
        if self._fd < 0:
            try:
                self._fd = open_regular(self._path, os.O_RDONLY)
            except FileNotFoundError:
                return False
            suspended, self._suspended = self._suspended, None
            if suspended != _identity(os.fstat(self._fd)):
                self._incomplete_line = bytearray()
                self._skipped = self._taken = 0
                self.position = position
        return True

    def skip_to_last(self, last: int, end: int | None) -> int:
        """Skip to the last unread lines, and return the position where these lines end.

        Args:
            last: Maximum number of lines.
            end: The position where the lines end, in bytes; None means the present end of the file.
        """
        if end is None:
            end = os.fstat(self._fd).st_size
        if self.position < end:
            self.position = find_last_lines(self._fd, last, self.position, end)[0]
        return end

    def suspend(self) -> None:
        """Close the file; the next :meth:`open` continues where reading stopped."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._suspended = _identity(os.fstat(fd))
            os.close(fd)

    def refresh(self) -> None:
        """Make writes of other machines to a shared file system visible.

        For some seconds, NFS caches the size of an open file and the absence of a missing file.
        Opening the file or its folder makes NFS query the server.
        """
        try:
            if self._fd < 0:
                os.scandir(os.path.dirname(self._path) or ".").close()
                return
            fd = open_regular(self._path, os.O_RDONLY)
        except OSError:
            return  # the next read reports the error
        if os.path.sameopenfile(fd, self._fd):
            fd, self._fd = self._fd, fd
        os.close(fd)

    def size(self) -> int:
        """Return the size of the file in bytes, 0 if it does not exist."""
        try:
            return os.stat(self._path).st_size
        except FileNotFoundError:
            return 0

    def read_lines(self, limit: int | None) -> Iterator[Iterable[str]]:
        """Yield blocks of whole lines that were not read before.

        The rest of a line that is longer than :data:`LONGEST_LINE_BYTES` is replaced by a remark.

        Args:
            limit: The position where to stop, in bytes; None stops at the end of the file.
        """
        size = BLOCK_BYTES
        while limit is None or (size := min(BLOCK_BYTES, limit - self.position)) > 0:
            block = self._read(size)
            if not block:
                return
            self.position += len(block)
            if self._skipped or self._line_bytes > LONGEST_LINE_BYTES - len(block):
                first, newline, block = block.partition(b"\n")
                self._add_incomplete(first)
                if newline:
                    yield (f"{self._take_incomplete_line()}\n",)
            end = block.rfind(b"\n") + 1
            if not end:
                self._add_incomplete(block)
                continue
            self._taken = 0
            self._incomplete_line += block[:end]
            text = self._incomplete_line.decode("utf-8", "replace")
            self._incomplete_line = bytearray(block[end:])
            if len(text) < _LONGEST_STRING_IO:
                yield io.StringIO(text, newline="\n")
            else:
                yield split_lines(text)

    def _read(self, size: int) -> bytes:
        """Return at most ``size`` bytes at :attr:`position`; empty at the end of the file."""
        return os.pread(self._fd, size, self.position)

    @property
    def _line_bytes(self) -> int:
        return self._taken + len(self._incomplete_line)

    def has_piece(self) -> bool:
        """Return True if :meth:`take_piece` would return text."""
        return whole_length(self._incomplete_line) > 0

    def take_piece(self) -> PartialLine:
        """Return the part of the incomplete last line that is new and can be shown."""
        length = whole_length(self._incomplete_line)
        piece = self._incomplete_line[:length].decode("utf-8", "replace")
        del self._incomplete_line[:length]
        self._taken += length
        return PartialLine(piece)

    def read_incomplete_line(self) -> Iterator[Iterable[str]]:
        """Yield the incomplete last line, if there is one, as a block of its own.

        If pieces of the line were returned, the block has the rest of the line, which may be empty.
        """
        if self._incomplete_line or self._taken:
            yield (self._take_incomplete_line(),)

    def _add_incomplete(self, block: bytes) -> None:
        room = LONGEST_LINE_BYTES - self._line_bytes
        if len(block) > room:
            self._skipped += len(block) - room
            block = block[:room]
        self._incomplete_line += block

    def _take_incomplete_line(self) -> str:
        line = self._incomplete_line.decode("utf-8", "replace")
        if self._skipped:
            line += f" [{self._skipped} more bytes of this line are in {self._path}]"
        self._incomplete_line = bytearray()
        self._skipped = self._taken = 0
        return line

    def was_replaced(self) -> bool:
        """Return True if the file was truncated, or if its path now names another file.

        If only a part of the incomplete last line was removed, the file continues from there.
        """
        removed = self.position - os.fstat(self._fd).st_size
        if removed > 0:
            if self._skipped or removed > len(self._incomplete_line):
                return True
            del self._incomplete_line[-removed:]
            self.position -= removed
        try:
            current = os.stat(self._path)
        except FileNotFoundError:
            return False  # deleted, or a log rotation has not created the new file yet
        return _identity(current) != _identity(os.fstat(self._fd))

    def close(self) -> None:
        """Close the file; may be called more than once."""
        self.suspend()
        self._suspended = None
        self.position = 0


def find_line_begin(fd: int, begin: int, end: int) -> int | None:
    """Return the position after the last newline in a part of a file; None if it has none."""
    position, _ = find_last_lines(fd, 1, begin, end + 1)
    return position if begin < position <= end else None


def find_last_lines(fd: int, last: int, begin: int, end: int) -> tuple[int, int]:
    """Find the last lines of a part of a file, reading backwards, one block at a time.

    Args:
        fd: The file.
        last: Maximum number of lines.
        begin: Where the part begins, in bytes: the beginning of a line.
        end: Where the part ends, in bytes. The last line may be incomplete.

    Returns:
        The position where the lines begin, in bytes, and the number of lines.
    """
    if last <= 0 or end <= begin:
        return end, 0
    count = 0
    upper = end - 1  # a newline in the last byte begins no line
    while upper > begin:
        lower = max(begin, upper - BLOCK_BYTES)
        block = os.pread(fd, upper - lower, lower)
        newlines = block.count(b"\n")
        if count + newlines < last:
            count += newlines
        else:
            at = len(block)
            while count < last:
                at = block.rindex(b"\n", 0, at)
                count += 1
            return lower + at + 1, count
        upper = lower
    return begin, count + 1


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


#: How long text without a newline is held back, in seconds.
PIECE_SECONDS = 0.2

# A longer escape sequence is shown before its end, because a job may never end it.
_LONGEST_SEQUENCE_BYTES = 4096
# An unfinished escape sequence (CSI, OSC or another kind), without its last characters.
_CUT_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[ -/]+|[\]PX^_][^\x07]*)?\Z")


def whole_length(data: bytes | bytearray) -> int:
    r"""Return how many bytes of an incomplete line can be shown.

    The rest is a part of a character or of an escape sequence, or a ``\r`` that ``\n`` may follow.

    >>> whole_length("50% é".encode()[:-1])
    4
    >>> whole_length(b"50%\x1b[3")
    3
    """
    length = len(data)
    while True:
        before = length
        for size in range(1, min(4, length + 1)):
            byte = data[length - size]
            if byte & 0xC0 != 0x80:
                needed = 4 - (byte < 0xF0) - (byte < 0xE0)
                length -= size if 0xC0 <= byte < 0xF8 and needed > size else 0
                break
        begin = data.rfind(b"\x1b", max(0, length - _LONGEST_SEQUENCE_BYTES), length)
        if begin >= 0 and _CUT_SEQUENCE.match(data[begin:length]):
            length = begin
        while length and data[length - 1] == 0x0D:
            length -= 1
        if length == before:
            return length


class _Source:
    """A file whose whole lines are merged into the log, and its incomplete last line.

    Attributes:
        begin: Position of the incomplete line, in bytes.
        text: The part of the incomplete line that was not shown.
        shown: The part of a line that was shown before the line was in the log; otherwise empty.
        shown_begin: Position of the line that begins with ``shown`` in the file, in bytes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._size = 0
        self.begin = 0
        self.text = bytearray()
        self.shown = ""
        self.shown_begin = 0

    def has_ended(self, line: str) -> bool:
        """Return True if ``line``, from the log, is the line that begins with :attr:`shown`."""
        if not line.startswith(self.shown):
            return False
        self.read()
        # At the end of a replica, its incomplete lines are merged, too.
        rest = self.text.decode("utf-8", "replace")
        return self.begin != self.shown_begin or line.removesuffix("\n") == self.shown + rest

    def read(self) -> None:
        try:
            fd = open_regular(self.path, os.O_RDONLY)
        except OSError:
            return  # not created yet; an unreadable file has no pieces
        try:
            size = os.fstat(fd).st_size
            if size < self._size:  # truncated
                self.begin = self._size = 0
                self.text.clear()
            begin = find_line_begin(fd, self._size, size)
            if begin is not None:
                self.begin = self._size = begin
                self.text.clear()
            wanted = min(size, self.begin + LONGEST_LINE_BYTES) - self._size
            if wanted > 0:
                self.text += os.pread(fd, wanted, self._size)
            self._size = size
        finally:
            os.close(fd)


class SourceLines:
    """The incomplete last lines of several files.

    Another process merges only the whole lines of these files into a log. A piece of a line is
    shown before the line is in the log. When the log has the whole line, only the rest of the line
    is shown.

    Args:
        paths: The files.
    """

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self._sources = [_Source(path) for path in paths]
        self._open: _Source | None = None

    def read(self, position: int) -> bool:
        """Read the files, and return True if there are pieces to show.

        Args:
            position: How many bytes of the log were read. If more whole lines are in the files
                than in the log, pieces must wait: those lines come first.
        """
        for source in self._sources:
            source.read()
        if sum(source.begin for source in self._sources) != position:
            return False
        return any(whole_length(source.text) for source in self._sources)

    def take_pieces(self) -> list[str]:
        """Return the new text of incomplete lines, which is shown before their ends are written.

        An empty item ends the line of another file that was shown in part.
        """
        items: list[str] = []
        for source in self._sources:
            length = whole_length(source.text)
            if not length:
                continue
            if self._open not in (None, source):
                items.append("")  # ends the line of the other file
            piece = source.text[:length].decode("utf-8", "replace")
            del source.text[:length]
            source.shown += piece
            source.shown_begin = source.begin
            self._open = source
            items.append(PartialLine(piece))
        return items

    def rest_of_lines(self, lines: list[str]) -> list[str]:
        """Return lines of the log without the text that was shown.

        An empty item before a line ends the line of another file that was shown in part.
        """
        items: list[str] = []
        for line in lines:
            # The line may begin with the shown texts of both files. Then remove the longer text.
            # This is right even if the line is from the other file: the line that is still missing
            # begins with the shorter text, too.
            found = [s for s in self._sources if s.shown and s.has_ended(line)]
            source = max(found, key=lambda s: len(s.shown), default=None)
            if self._open not in (None, source):
                items.append("")
                self._open = None
            if source is None:
                items.append(line)
                continue
            rest = line[len(source.shown) :]
            source.shown = ""
            if self._open is source or rest.strip("\n"):
                items.append(rest)
            self._open = None
        return items

    @property
    def has_shown(self) -> bool:
        """Whether a line was shown in part before the merged log contains the line."""
        return any(source.shown for source in self._sources)

    def end(self) -> list[str]:
        """Return an empty item, which ends the line, if the last item was a piece of a line."""
        was_open, self._open = self._open, None
        return [""] if was_open is not None else []
