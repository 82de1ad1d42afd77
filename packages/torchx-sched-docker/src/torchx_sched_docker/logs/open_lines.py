r"""Merge two sources of a container's output: whole lines, and bytes as they are written.

The engine's log has every line, but only once the line has ended. An attached client receives bytes
at once, but only those that are written after it was attached. So all whole lines are taken from
the log, and the text of a line that has not ended is taken from the client.

The client's incomplete line is shown only if the last line of the log is the last whole line that
the client has received. When the whole line comes from the log, only the part that was not shown
before is shown.

A client that is attached in the middle of a line lacks the beginning of that line. The text that
the client has is shown nevertheless, and then the whole line from the log after a ``\r``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torchx_kit.logs.log_file import PIECE_SECONDS, whole_length
from torchx_specs.schedulers.log_items import PartialLine


class _OpenLine:
    """The line of one stream that has not ended.

    Attributes:
        text: The part of the line that the client has received.
        shown: How many bytes of ``text`` were shown.
        ended: The shown part of a line that has ended but is not in the log yet.
        last: The last whole line from the client, or only the end of that line; empty if the client
            has received no newline yet.
        logged: The last line from the log.
    """

    def __init__(self) -> None:
        self.text = bytearray()
        self.shown = 0
        self.ended = self.last = self.logged = b""

    def end(self, last: bytes) -> None:
        """Begin another line.

        Args:
            last: The whole line that has ended; empty if another client was attached, which may
                have missed some bytes.
        """
        if self.shown:
            self.ended = bytes(self.text[: self.shown])
        self.last = last
        self.text.clear()
        self.shown = 0

    def add(self, data: bytes) -> None:
        """Add bytes from the client."""
        ended, newline, rest = data.rpartition(b"\n")
        if newline:
            _, has_several, last = ended.rpartition(b"\n")
            self.end((last if has_several else bytes(self.text) + ended) + newline)
        self.text += rest

    def take(self, line: bytes) -> tuple[bytes, bool]:
        """Return the unshown part of a line from the log, and whether some text was shown before.

        If the shown text is not the beginning of this line, return a carriage return and the whole
        line.
        """
        self.logged = line
        before, self.ended = self.ended, b""
        if not before and self.shown:  # The log has the newline before the client has received it.
            before, self.shown = bytes(self.text[: self.shown]), 0
        if line.startswith(before):
            return line[len(before) :], bool(before)
        return b"\r" + line, True

    def take_piece(self) -> bytes:
        """Return the part of the line to show now, which may be empty."""
        if self.ended or not self.logged.endswith(self.last):
            return b""
        end = whole_length(self.text)
        piece = bytes(self.text[self.shown : end])
        self.shown = max(self.shown, end)
        return piece


class OpenLines:
    """The lines of a container's streams that have not ended.

    Args:
        streams: The numbers of the streams to show.
        clock: Returns a time in seconds.
    """

    def __init__(
        self, streams: frozenset[int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = {stream: _OpenLine() for stream in sorted(streams)}
        self._clock = clock
        self._due: float | None = None
        # The stream of the last item, if that item was a part of a line; otherwise None.
        self._continued: int | None = None

    def attached(self) -> None:
        """Forget the text of all streams, because another client was attached."""
        for line in self._lines.values():
            line.end(b"")

    def add(self, stream: int, data: bytes) -> None:
        """Add bytes that the attached client has received for a stream."""
        if stream in self._lines:
            self._lines[stream].add(data)
            if self._due is None or b"\n" in data:
                self._due = self._clock() + PIECE_SECONDS

    def take(self, stream: int, line: bytes) -> list[str]:
        """Return the items to show for a line from the log, without its part that was shown."""
        rest, has_shown = self._lines[stream].take(line)
        self._due = self._clock() + PIECE_SECONDS  # The held text follows this line.
        items = [] if self._continued in (None, stream) else [""]
        if self._continued == stream or not has_shown or rest.strip(b"\n"):
            items.append(rest.decode("utf-8", "replace"))
        self._continued = None
        return items

    def seconds_to_wait(self) -> float | None:
        """Return after how many seconds to call :meth:`take_pieces`; None if nothing is held."""
        return None if self._due is None else max(0.0, self._due - self._clock())

    def take_pieces(self) -> list[str]:
        """Return the text to show now; an empty list if nothing was held back long enough."""
        if self._due is None or self._clock() < self._due:
            return []
        self._due = None
        items: list[str] = []
        for stream, line in self._lines.items():
            piece = line.take_piece()
            if not piece:
                continue
            if self._continued not in (None, stream):
                items.append("")  # The empty item ends the line of the other stream.
            self._continued = stream
            items.append(PartialLine(piece.decode("utf-8", "replace")))
        return items

    def end(self) -> list[str]:
        """Return the items to show at the log's end.

        The list has an empty item, which ends the line, if the last item was a part of a line.
        Otherwise the list is empty.
        """
        was_continued, self._continued = self._continued, None
        return [""] if was_continued is not None else []
