"""Writes the copy of one stream of one replica, and continues the copy of an earlier process.

A copy needs no index, because the log's lines alone determine where a segment begins. Each process
reads the log from its beginning, and skips the lines that are in the copy. The process compares the
log with the copy's last segment, and so notices a log that is not a continuation of the copy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from torchx_log_sinks.layout import segment_name, segments, split_lines

#: A segment ends with the line that makes it at least this large. The size may be changed: the
#: names of existing segments stay valid.
SEGMENT_BYTES = 1 << 18
# How many of the copy's last lines are searched in a log that does not continue the copy.
_OVERLAP_LINES = 50


class LogChangedError(Exception):
    """The scheduler's log is not a continuation of the copy."""


class CopyWriter:
    """Appends lines to the copy of one stream of a replica's log.

    One thread calls :meth:`add`; another thread may call :meth:`flush`.

    Args:
        write: Stores data under a name.
        read: Returns the data of a name.
        names: The names that the sink has.
        folder: The folder of the replica.
        stream: The stream.

    Attributes:
        added: The number of lines that this object has added to the copy.
    """

    def __init__(
        self,
        write: Callable[[str, bytes], object],
        read: Callable[[str], bytes],
        names: Collection[str],
        folder: str,
        stream: str,
    ) -> None:
        self.added = 0
        self._write = write
        self._folder = folder
        self._stream = stream
        self._lock = threading.Lock()
        self._generation = self._first = self._seen = self._size = 0
        self._lines: list[bytes] = []
        self._is_saved = True
        self._incomplete = b""
        stored = segments(names, folder, stream)
        lines: list[bytes] = []
        if stored:
            self._generation, self._first, name = stored[-1]
            lines = split_lines(read(name))
        self._expected = deque(lines)
        self._end_of_copy = lines[-_OVERLAP_LINES:]

    def add(self, lines: Iterable[str]) -> None:
        """Add the next lines of the log; the first call must begin with the log's first line.

        Raises:
            LogChangedError: The lines differ from those of the copy.
        """
        for text in lines:
            self._end_line()
            line = text.encode("utf-8", "replace")
            if line.endswith(b"\n"):
                self._add(line)
            else:  # no newline: the last line of the log, or of an earlier attempt of the replica
                self._incomplete = line

    def _end_line(self) -> None:
        line, self._incomplete = self._incomplete, b""
        if line:
            self._add(line + b"\n")

    def _add(self, line: bytes) -> None:
        with self._lock:
            self._seen += 1
            if self._seen <= self._first:
                return
            if self._expected:
                if self._expected.popleft() != line:
                    raise LogChangedError
            else:
                self._is_saved = False
                self.added += 1
            self._lines.append(line)
            self._size += len(line)
            if self._size >= SEGMENT_BYTES:
                self._flush()
                self._first, self._lines, self._size = self._seen, [], 0

    def flush(self) -> None:
        """Store the lines that were added."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._is_saved:
            name = segment_name(self._folder, self._stream, self._generation, self._first)
            self._write(name, b"".join(self._lines))
            self._is_saved = True

    def finish(self, is_complete: bool) -> None:
        """Store all lines. A last line without a newline is stored only if the log is complete.

        Raises:
            LogChangedError: The log has fewer lines than the copy.
        """
        if is_complete:
            self._end_line()
        self.flush()
        if self._expected or self._seen < self._first:
            raise LogChangedError

    def restart(self, log: Iterable[str]) -> bool:
        """Continue with a new generation, because the log does not continue the copy.

        Afterwards, :meth:`add` gets the lines of the log again, from its first line. If ``log``
        contains the last lines of the copy (at most 50), :meth:`add` skips the log's lines up to
        their end, because the copy has these lines.

        Args:
            log: The lines that the log has now.

        Returns:
            Whether the end of the copy was found in the log. If not, lines may be lost.
        """
        first = _lines_before(log, self._end_of_copy)
        with self._lock:
            self._generation += 1
            self._first = first
            self._seen = self._size = 0
            self._lines, self._expected, self._incomplete = [], deque(), b""
            self._is_saved = True
        return first > 0


def _lines_before(log: Iterable[str], end_of_copy: list[bytes]) -> int:
    """Return how many lines of a log are in the copy; 0 if the log lacks the end of the copy."""
    if not end_of_copy:
        return 0
    window: deque[bytes] = deque(maxlen=len(end_of_copy))
    expected = deque(end_of_copy)
    for number, text in enumerate(log, 1):
        window.append(text.encode("utf-8", "replace"))
        if window == expected:
            return number
    return 0
