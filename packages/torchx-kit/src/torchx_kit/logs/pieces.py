"""Pieces of unfinished lines: text without a newline, such as a progress bar."""

from __future__ import annotations

import os
import re

from torchx_kit.logs.log_file import LONGEST_LINE_BYTES, find_line_begin
from torchx_kit.logs.regular_files import open_regular
from torchx_specs.schedulers.log_items import PartialLine

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
