"""Copies the logs of several replicas to one stream, with the replica's name before each line."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from torchx_cli.logs.open_lines import LiveLines, OpenLines, last_state
from torchx_cli.logs.open_lines import prefix_line as prefix_line
from torchx_cli.output.colors import is_terminal
from torchx_cli.output.in_place import can_replace_text, region_owner
from torchx_cli.output.live_region import LiveRegion
from torchx_cli.output.terminal_safety import escape_controls, safe_log_lines, write_safe
from torchx_specs.schedulers.log_items import Block, PartialLine, Replica
from torchx_specs.schedulers.logs import LogQuery

if TYPE_CHECKING:
    from collections.abc import Generator

logger = logging.getLogger(__name__)

#: Reads the logs of several replicas of an app, as ``Runner.log_blocks`` does.
LogBlocks = Callable[[str, Iterable[Replica], LogQuery], Iterator[Block]]

# If logs are not followed, lines are collected and written together, after this many characters or
# this many seconds.
_BUFFER_CHARS = 1 << 18
_BUFFER_SECONDS = 0.2


class LogReader:
    """Reads the logs of several replicas, and writes their lines to one stream.

    One thread calls :meth:`read_all`; another thread may call :meth:`stop`.

    Args:
        log_blocks: Reads the logs, as ``Runner.log_blocks`` does.
        app_handle: The app, which must exist.
        replicas: Role and index of each replica.
        query: Which lines to show.
        stream: Where the lines are written.
        colorize: Whether to colour the name of the replica.
        clock: Returns the time in seconds, for the drawings of the live region.

    Attributes:
        lines: The number of lines, and of pieces of unfinished lines, that were read so far.
    """

    def __init__(
        self,
        log_blocks: LogBlocks,
        app_handle: str,
        replicas: Sequence[Replica],
        query: LogQuery,
        stream: TextIO,
        colorize: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lines = 0
        self._log_blocks = log_blocks
        self._app_handle = app_handle
        self._replicas = replicas
        self._query = query
        self._stream = stream
        self._prefixes: dict[Replica, str] = {}
        self._color = ("\033[32m", "\033[0m") if colorize else ("", "")
        self._on_terminal = is_terminal(stream)
        has_pieces = query.should_tail and query.partial and query.regex is None
        is_live = has_pieces and can_replace_text(stream)
        self._region = LiveRegion(stream, clock) if is_live else None
        self._live_lines = LiveLines()
        lines = self._live_lines if is_live else OpenLines(self._on_terminal)
        self._open_lines: OpenLines = lines
        # The thread of late text, and threads that log, also write text.
        self._showing = threading.Condition(threading.RLock())
        self._late_thread: threading.Thread | None = None
        # When held-back text is to be shown (time.monotonic); None if there is none.
        self._late_at: float | None = None
        self._writing = threading.Lock()
        self._stopped = False
        self._is_ended = False
        self._buffer: list[str] = []
        self._buffered_chars = 0
        self._written_at = 0.0

    @property
    def is_writing(self) -> bool:
        """Whether a write is in progress, which may take long if the stream is a pipe."""
        return self._writing.locked()

    def stop(self) -> None:
        """Write no more lines; a write in progress is completed, and a live region is removed."""
        if self._region is None:
            self._stopped = True
            with self._writing:  # wait for a write in progress
                return
        with self._showing:
            with suppress(OSError, UnicodeError):
                self._end_lines()
            self._stopped = True

    def read_all(self) -> None:
        """Copy each log to its end, unless :meth:`stop` is called.

        Raises:
            BrokenPipeError: The stream was closed by its reader.
            Exception: The first error of a log, after the other logs were read; further errors
                are logged.
        """
        errors: list[Exception] = []
        blocks = self._read()
        try:
            with closing(blocks), self._owned_region():
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
            with self._showing:
                self._is_ended = True
                self._showing.notify()
        self._end_lines()
        for error in errors[1:]:
            logger.error("%s", error)
        if errors:
            raise errors[0]

    def _read(self) -> Generator[Block, Any, Any]:
        # This is a generator, because read_all() calls close(), and the iterator that a subclass of
        # Runner returns may lack this method.
        query = replace(self._query, attempts=self._on_terminal)
        if not query.should_tail or query.regex is not None:
            query = replace(query, partial=False)
        blocks = self._log_blocks(self._app_handle, self._replicas, query)
        if query.last is None or query.should_tail:
            yield from blocks
            return
        # Several logs may be read at the same time. Yield their lines in the order of the replicas.
        lines: dict[Replica, list[str]] = {replica: [] for replica in self._replicas}
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
                self._write_items(replica, prefix, lines)
                return
        if self._region is not None:
            lines = [last_state(line) if "\r" in line else line for line in lines]
        if self._on_terminal:
            lines = safe_log_lines(lines)
        # The last line of a log may lack a newline. Add one: another replica's line may follow.
        whole = [prefix_line(prefix, line if line[-1:] == "\n" else line + "\n") for line in lines]
        text = "".join(whole)
        with self._showing:
            self._buffer.append(text)
            self._buffered_chars += len(text)
            self.lines += len(whole)
            if (
                self._query.should_tail
                or self._buffered_chars >= _BUFFER_CHARS
                or time.monotonic() - self._written_at >= _BUFFER_SECONDS
            ):
                self._flush()

    def _write_items(self, replica: Replica, prefix: str, items: Iterable[str]) -> None:
        with self._showing:
            for item in items:
                self.lines += 1
                if text := self._open_lines.add(replica, prefix, item):
                    self._buffer.append(text)
                    self._buffered_chars += len(text)
            self._flush()
            due = self._open_lines.due() if self._late_at is None else None
            if due is not None:
                self._flush_after(due - time.monotonic())

    def _flush_after(self, seconds: float) -> None:
        if self._late_at is None:
            self._late_at = time.monotonic() + seconds
            if self._late_thread is None:
                self._late_thread = threading.Thread(target=self._show_late, daemon=True)
                self._late_thread.start()
            self._showing.notify()

    def _show_late(self) -> None:
        """Show text once it was held back long enough, in a thread of its own."""
        with self._showing:
            while not self._is_ended:
                seconds = None if self._late_at is None else self._late_at - time.monotonic()
                if seconds is None or seconds > 0:
                    self._showing.wait(seconds)
                    continue
                self._late_at = None
                self._buffer.append(self._open_lines.show_due())
                with suppress(OSError, UnicodeError):  # the next line that is written raises it
                    self._flush()

    def _end_lines(self) -> None:
        """Show the text that was held back, and remove the live region."""
        with self._showing:
            self._buffer.append(self._open_lines.end())
            self._flush(at_once=True)

    def _owned_region(self) -> AbstractContextManager[None]:
        return nullcontext() if self._region is None else region_owner(self._hidden)

    @contextmanager
    def _hidden(self) -> Iterator[None]:
        """Remove the live region while another thread or a library writes to the terminal."""
        with self._showing:
            if self._region is not None and (text := self._region.hide()):
                with suppress(OSError, UnicodeError):
                    self._write_text(text)
                self._flush_after(self._region.seconds_to_wait())
            yield

    def _flush(self, at_once: bool = False) -> None:
        """Write the buffer; the live region, if there is one, is drawn at most ten times a second.

        Args:
            at_once: Whether to write even if the region was drawn a moment ago.
        """
        region, seconds = self._region, 0.0
        if region is not None and not at_once:
            if self._late_at is not None and self._buffered_chars < _BUFFER_CHARS:
                return  # the thread of late text will draw
            seconds = region.seconds_to_wait()
            if seconds:
                self._flush_after(seconds)
                if self._buffered_chars < _BUFFER_CHARS:
                    return
        text = "".join(self._buffer)
        self._buffer.clear()
        self._buffered_chars = 0
        if region is not None and not self._stopped:
            states = self._live_lines.states()
            text = region.hide() + text if seconds else region.draw(text, states)
        self._write_text(text)
        self._written_at = time.monotonic()

    def _write_text(self, text: str) -> None:
        with self._writing:
            if self._stopped or not text:
                return
            try:
                write_safe(self._stream, text)
                self._stream.flush()
            except UnicodeError:
                raise
            except ValueError as e:  # the stream is closed
                raise BrokenPipeError(str(e)) from e
