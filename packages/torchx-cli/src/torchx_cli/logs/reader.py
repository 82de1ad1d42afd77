"""Copies the logs of several replicas to one stream, with the replica's name before each line."""

from __future__ import annotations

import io
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from torchx_cli.output.colors import is_terminal
from torchx_cli.output.live_region import LiveRegion
from torchx_cli.output.terminal import can_replace_text, escape_controls, safe_log_lines, write_safe
from torchx_specs.schedulers.log_items import Block, PartialLine, Replica
from torchx_specs.schedulers.logs import LogQuery

logger = logging.getLogger(__name__)

#: Reads the logs of several replicas of an app, as ``Runner.log_blocks`` does.
LogBlocks = Callable[[str, Iterable[Replica], LogQuery], Iterator[Block]]

# Lines are collected and written together, after this many characters or seconds. Followed lines
# are written at once, except on a terminal with a live region.
_BUFFER_CHARS = 1 << 18
_BUFFER_SECONDS = 0.2
#: The shortest time between two drawings of the live region, in seconds.
DRAW_SECONDS = 0.1
#: The shortest time between two updates of an unfinished line that is not updated in place.
UPDATE_SECONDS = 1.0
_MOST_HELD_CHARS = 1 << 16


class LogReader:
    """Reads the logs of several replicas, and writes their lines to one stream.

    One thread calls :meth:`read_all`; another thread may call :meth:`stop`.

    Args:
        log_blocks: Reads the logs, as ``Runner.log_blocks`` does.
        app_handle: The app.
        query: Which lines to show.
        stream: Where the lines are written.
        colorize: Whether to colour the name of the replica.

    Attributes:
        lines: The number of lines, and of pieces of unfinished lines, that were read so far.
        is_writing: Whether a write is in progress, which may take long if the stream is a pipe.
    """

    def __init__(
        self,
        log_blocks: LogBlocks,
        app_handle: str,
        query: LogQuery,
        stream: TextIO,
        colorize: bool = False,
    ) -> None:
        self.lines = 0
        self.is_writing = False
        self._log_blocks = log_blocks
        self._app_handle = app_handle
        self._on_terminal = is_terminal(stream)
        has_pieces = query.should_tail and query.partial and query.regex is None
        self._query = query._replace(attempts=self._on_terminal, partial=has_pieces)
        self._stream = stream
        self._prefixes: dict[Replica, str] = {}
        self._color = ("\033[32m", "\033[0m") if colorize else ("", "")
        self._region: LiveRegion | None = None
        self._pause = 0.0 if query.should_tail else _BUFFER_SECONDS
        if has_pieces and can_replace_text(stream):
            self._region, self._pause = LiveRegion(stream), DRAW_SECONDS
        self._open_lines = OpenLines(self._on_terminal, self._region is not None)
        # The thread of late text, and threads that log, also write text.
        self._lock = threading.RLock()
        self._stopped = False
        self._ended = threading.Event()
        self._buffer = io.StringIO()
        self._written_at = -math.inf

    def stop(self) -> None:
        """Write no more lines; a write in progress is completed, and a live region is removed."""
        with self._lock:
            with suppress(OSError, UnicodeError):
                self._end_lines()
            self._stopped = True

    def read_all(self, replicas: Sequence[Replica]) -> None:
        """Copy each log to its end, unless :meth:`stop` is called.

        Args:
            replicas: Role and index of each replica.

        Raises:
            BrokenPipeError: The stream was closed by its reader.
            Exception: The first error of a log, after the other logs were read; further errors
                are logged.
        """
        errors: list[Exception] = []
        blocks = self._read(replicas)
        if self._query.partial:
            threading.Thread(target=self._show_late, daemon=True).start()
        try:
            with closing(blocks), self._region or nullcontext():
                for replica, block in blocks:
                    if isinstance(block, Exception):
                        errors.append(block)
                    else:
                        self._write(replica, block)
                    if self._stopped:
                        return
        except BaseException:
            with suppress(OSError, UnicodeError):  # keep the error that ended the reading
                self._end_lines()
            raise
        finally:
            self._ended.set()
        self._end_lines()
        for error in errors[1:]:
            logger.error("%s", error)
        if errors:
            raise errors[0]

    def _read(self, replicas: Sequence[Replica]) -> Generator[Block, Any, Any]:
        # This is a generator, because read_all() calls close(), and the iterator that a subclass of
        # Runner returns may lack this method.
        blocks = self._log_blocks(self._app_handle, replicas, self._query)
        if self._query.last is None or self._query.should_tail:
            yield from blocks
            return
        # Several logs may be read at the same time. Yield their lines in the order of the replicas.
        lines: dict[Replica, list[str]] = {replica: [] for replica in replicas}
        for replica, block in blocks:
            if isinstance(block, Exception):
                yield replica, block
            else:
                lines[replica] += block
        yield from lines.items()

    def _write(self, replica: Replica, lines: Iterable[str]) -> None:
        prefix = self._prefixes.get(replica)
        if prefix is None:
            on, off = self._color
            name = escape_controls(replica[0]) if self._on_terminal else replica[0]
            prefix = self._prefixes[replica] = f"{on}{name}/{replica[1]}{off} "
        if self._query.partial:
            lines = list(lines)
            if replica in self._open_lines or PartialLine in set(map(type, lines)):
                with self._lock:
                    self._add([self._open_lines.add(replica, prefix, line) for line in lines])
                return
        if self._region is not None:
            lines = [last_state(line) if "\r" in line else line for line in lines]
        if self._on_terminal:
            lines = safe_log_lines(lines)
        # The last line of a log may lack a newline. Add one: another replica's line may follow.
        whole = (line if line[-1:] == "\n" else line + "\n" for line in lines)
        self._add([prefix_line(prefix, line) for line in whole])

    def _add(self, lines: Sequence[str]) -> None:
        """Add lines to the buffer, and write the buffer if it is large or old enough."""
        text = "".join(lines)
        with self._lock:
            self.lines += len(lines)
            self._buffer.write(text)
            is_due = time.monotonic() >= self._written_at + self._pause
            if is_due or self._buffer.tell() >= _BUFFER_CHARS:
                self._flush()

    def _show_late(self) -> None:
        """Show text that was held back, in a thread of its own."""
        while not self._ended.wait(DRAW_SECONDS / 2):
            with self._lock, suppress(OSError, UnicodeError):  # the next line's write raises it
                self._buffer.write(self._open_lines.show_due())
                self._add([])

    def _end_lines(self) -> None:
        """Show the text that was held back, and remove the live region."""
        with self._lock:
            self._buffer.write(self._open_lines.end())
            self._flush()

    def _flush(self) -> None:
        """Write the buffer, and the live region if there is one."""
        text = self._buffer.getvalue()
        self._buffer = io.StringIO()
        if self._stopped:
            return
        self.is_writing = True
        try:
            if self._region is not None:
                self._region.draw(text, self._open_lines.states())
            elif text:
                write_safe(self._stream, text)
                self._stream.flush()
        except UnicodeError:
            raise
        except ValueError as e:  # the stream is closed
            raise BrokenPipeError(str(e)) from e
        finally:
            self.is_writing = False
            self._written_at = time.monotonic()


# -- unfinished lines: text without a newline, such as a progress bar


@dataclass
class _OpenLine:
    """A line that has no newline yet.

    Attributes:
        prefix: Text in front of each line of the replica.
        held: The part of the line that was not shown.
        shown_at: When text of the line was last shown (:func:`time.monotonic`); None if no text of
            the line was shown.
    """

    prefix: str
    held: str = ""
    shown_at: float | None = None


class OpenLines:
    r"""The unfinished lines of several replicas.

    The text after the last ``\r`` is shown as a line of its own, at most once in
    :data:`UPDATE_SECONDS` for each replica unless the line ends or is very long. With a live
    region, which has the present text of each line, only ended and very long lines are shown.

    Args:
        safe: Whether the text is for a terminal, so that control characters are escaped.
        has_region: Whether a live region shows the lines.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, safe: bool, has_region: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._safe = safe
        self._has_region = has_region
        self._clock = clock
        self._lines: dict[Replica, _OpenLine] = {}

    def __contains__(self, replica: Replica) -> bool:
        return replica in self._lines

    def add(self, replica: Replica, prefix: str, item: str) -> str:
        """Return the text to show for the next item of a replica's log.

        Args:
            replica: Role and index of the replica.
            prefix: Text in front of each line of the replica.
            item: A piece of a line (:class:`PartialLine`), a whole line, or the rest of a line that
                follows its pieces.
        """
        line = self._lines.setdefault(replica, _OpenLine(prefix))
        line.held += item
        is_end = not isinstance(item, PartialLine)
        if is_end:
            del self._lines[replica]
        if self._has_region:
            line.held = last_state(line.held)
        elif is_end and line.shown_at is None:
            return self._whole(line.prefix, line.held)
        if is_end or len(line.held) > _MOST_HELD_CHARS or self._is_due(line):
            return self._show(line)
        return ""

    def show_due(self) -> str:
        """Return the text that was held back long enough."""
        waiting = [line for line in self._lines.values() if line.held and line.shown_at is not None]
        return "".join(self._show(line) for line in waiting if self._is_due(line))

    def end(self) -> str:
        """End all lines, and return the text that was held back."""
        lines, self._lines = self._lines, {}
        return "".join(self._show(line) for line in lines.values())

    def states(self) -> list[str]:
        """Return the present text of each line, in the order of the replicas."""
        return [line.prefix + line.held for _, line in sorted(self._lines.items()) if line.held]

    def _is_due(self, line: _OpenLine) -> bool:
        if self._has_region:
            return False
        return line.shown_at is None or self._clock() >= line.shown_at + UPDATE_SECONDS

    def _show(self, line: _OpenLine) -> str:
        """Return the text after the last carriage return of a line, as a line of its own."""
        line.shown_at = self._clock()
        text, line.held = last_state(line.held), ""
        return self._whole(line.prefix, text) if text else ""

    def _whole(self, prefix: str, text: str) -> str:
        text = text.removesuffix("\n") + "\n"
        if self._safe:
            (text,) = safe_log_lines([text])
        return prefix_line(prefix, text)


def last_state(text: str) -> str:
    r"""Return the text after the last ``\r`` of a line, without the line's end.

    >>> last_state("\r10%\r20%\n")
    '20%'
    """
    return text.rstrip("\r\n").rpartition("\r")[2]


def prefix_line(prefix: str, line: str) -> str:
    r"""Return a line with ``prefix`` in front, and after each ``\r`` and ``\n`` within the line."""
    head = line[:1] if line[:1] == "\r" else ""
    text, end = line[len(head) :], ""
    if text.endswith("\n"):
        text, end = text[:-1], "\n"
    if "\r" in text or "\n" in text:
        text = text.replace("\r", f"\r{prefix}").replace("\n", f"\n{prefix}")
    return f"{head}{prefix}{text}{end}"
