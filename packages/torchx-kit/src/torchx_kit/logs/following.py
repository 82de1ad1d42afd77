"""Follow one or many log files in one thread."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from torchx_kit.logs.file_logs import missing_log, unreadable_log
from torchx_kit.logs.lines import attempt_mark
from torchx_kit.logs.log_file import LogFile
from torchx_kit.logs.pieces import PIECE_SECONDS, SourceLines
from torchx_kit.logs.quiet_logs import (
    FEW_LOGS,
    FIRST_PAUSE_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    QuietLogs,
)

if TYPE_CHECKING:
    from torchx_kit.logs.file_logs import Tail, Window

_Key = TypeVar("_Key")


def follow(
    logs: Iterator[tuple[_Key, Followed | Exception]],
) -> Iterator[tuple[_Key, Iterable[str] | Exception]]:
    """Yield the new lines of several logs in blocks, each block with the key of its log.

    A block also contains the incomplete last line of an ended log and, if the log's
    ``tail.partial`` is True, pieces of a line whose end is not written yet. The iteration ends
    early when a log's ``tail.closing`` is set.

    Args:
        logs: Keys and their logs. An exception in place of a log is yielded unchanged.

    Yields:
        The key of a log, with a block of lines or the error that ended the log.
    """
    waiting = QuietLogs()
    keys: dict[Followed, _Key] = {}
    # Logs with new lines take turns, one block at a time, so that a long log does not delay others.
    turns: deque[tuple[Followed, Iterator[Iterable[str]]]] = deque()
    has_more = True
    try:
        while not waiting.is_closed():
            for _ in range(FEW_LOGS if has_more else 0):
                item = next(logs, None)
                if item is None:
                    has_more = False
                    break
                key, followed = item
                if isinstance(followed, Exception):
                    yield key, followed
                    continue
                keys[followed] = key
                waiting.end_with(followed.tail.closing)
                turns.append((followed, followed.read_new()))
            if not keys and not has_more:
                return
            for followed in waiting.wait(at_once=bool(turns) or has_more):
                turns.append((followed, followed.read_new()))
            for _ in range(len(turns)):
                followed, blocks = turns.popleft()
                block: Iterable[str] | Exception | None
                try:
                    block = next(blocks, None)
                    if block is None and not followed.is_over:
                        waiting.add(followed)
                        followed.suspend_if_scarce()
                except Exception as e:  # an error ends only the log that raised it
                    if _is_scarce(e) and _suspend_one(keys):
                        turns.append((followed, followed.read_new()))
                        continue
                    block = followed.translate_error(e)
                if block is not None:
                    yield keys[followed], block
                    if not isinstance(block, Exception):
                        turns.append((followed, blocks))
                        continue
                if block is not None or followed.is_over:
                    del keys[followed]
                    followed.close()
    finally:
        for followed in keys:
            followed.close()
        waiting.close()


def _is_scarce(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _suspend_one(logs: Iterable[Followed]) -> bool:
    """Close the file of one followed log, and return False if no log has an open file.

    A log that is being read stays open. If all open logs are being read, one of them can be closed
    later, so the return value is True.
    """
    opened = [log for log in logs if log.is_open]
    quiet = [log for log in opened if log.due is not None]
    if quiet:
        min(quiet, key=lambda log: log.last_read).suspend()
    return bool(opened)


class Followed:
    """A followed log file.

    This class and :class:`~torchx_kit.logs.quiet_logs.QuietLogs` store the state of the log in the
    attributes.

    Args:
        path: The log file.
        tail: Options for following the log.
        window: Limits the log to the lines written between two times; None for all lines.
        last: How many of the lines that exist at the first read are returned, counted from the end;
            None for all.
        begin: Position of the first line to read, in bytes; must be 0 if ``window`` is given.

    Attributes:
        has_ended: True once nothing more will be written to the log, or to its window.
        is_over: True once the log has ended and every line was read.
        must_check_end: Whether the next read has to call ``tail.is_finished``.
        last_read: When :meth:`read_new` was last called (:func:`time.monotonic`).
        pause: Seconds until the next look at the log.
        due: Time of the next look (:func:`time.monotonic`); None while the log is not in
            ``QuietLogs``.
        seen: What the last look has found of the log and its sources.
        watched: What the last look has found of the files in ``tail.watch``.
        piece_due: When to return the text of an incomplete line (:func:`time.monotonic`); None if
            there is no such text.
    """

    def __init__(
        self,
        path: str,
        tail: Tail,
        window: Window | None = None,
        last: int | None = None,
        begin: int = 0,
    ) -> None:
        self.path = path
        self.tail = tail
        self._window = window
        self._last = last
        self._begin = begin
        self._file = LogFile(path)
        self._checked = 0.0
        self._attempts = 0
        self.has_ended = False
        self.is_over = False
        self.must_check_end = True
        self.last_read = 0.0
        self.pause = FIRST_PAUSE_SECONDS
        self.due: float | None = None
        self.seen: Sequence[object] = ()
        self.watched: Sequence[object] = ()
        self.piece_due: float | None = None
        self._sources = SourceLines(list(tail.sources)) if tail.partial and tail.sources else None

    def read_new(self) -> Iterator[Iterable[str]]:
        """Yield the unread lines in blocks, and set :attr:`is_over` after the end of the log.

        If ``tail.partial`` is True, also yield pieces of an incomplete line.
        """
        self.last_read = time.monotonic()
        has_new = False
        file, window = self._file, self._window
        while True:
            # Check for the end before reading, so that no line written before the end is missed.
            has_ended = self.check_end() or (window is not None and window.is_over())
            self.has_ended = has_ended
            if has_ended:
                file.refresh()
            begin = window.begin() if window and not file.position else self._begin
            # Query the size before the position of the window's end. If that position is not known
            # yet, all bytes up to this size were written before the window ends.
            size = file.size() if window else None
            limit = window.end() if window else None
            last, self._last = self._last, None
            if begin is not None and file.open(begin):
                if last is not None:
                    file.skip_to_last(last, size if limit is None else limit)
                for block in self._read_attempts(size if limit is None else limit):
                    self.pause = SHORTEST_PAUSE_SECONDS
                    has_new = True
                    yield block
                if file.was_replaced():
                    for block in (*file.read_lines(limit), *file.read_incomplete_line()):
                        yield self._unshown(block)
                    file.close()
                    self._begin = 0
                    self.pause = SHORTEST_PAUSE_SECONDS
                    continue
            if has_ended or (limit is not None and file.position >= limit):
                for block in file.read_incomplete_line():
                    yield self._unshown(block)
                if self._sources is not None and (end := self._sources.end()):
                    yield end
                if has_ended and self.tail.rest is not None:
                    yield from self.tail.rest()
                self.is_over = True
            elif self.tail.partial and limit is None and (window is None or file.is_open):
                yield from self._read_pieces(has_new)
            return

    def _read_attempts(self, limit: int | None) -> Iterator[Iterable[str]]:
        """Yield blocks of whole lines up to a position, with a line where each attempt begins."""
        file = self._file
        if self.tail.attempts is not None:
            # Query the size first: an attempt that begins later writes only after this size.
            limit = file.size() if limit is None else limit
            for begin in self.tail.attempts()[self._attempts :]:
                if begin > limit:
                    break
                self._attempts += 1
                if begin >= file.position:  # not in the part of the log that is skipped
                    yield from map(self._unshown, file.read_lines(begin))
                    yield [attempt_mark(self._attempts + 1)]
        yield from map(self._unshown, file.read_lines(limit))

    def _unshown(self, block: Iterable[str]) -> Iterable[str]:
        """Return new lines, without text that was already returned as pieces of a line."""
        if self._sources is None or not self._sources.has_shown:
            return block
        return self._sources.rest_of_lines(list(block))

    def _read_pieces(self, has_new: bool) -> Iterator[Iterable[str]]:
        """Yield text without a newline that was held back for :data:`PIECE_SECONDS`.

        Args:
            has_new: Whether this read yielded lines. The text after these lines is then new.
        """
        file, sources = self._file, self._sources
        has_piece = file.has_piece() if sources is None else sources.read(file.position)
        now = time.monotonic()
        if not has_piece:
            self.piece_due = None
        elif has_new or self.piece_due is None:
            self.piece_due = now + PIECE_SECONDS
        elif now >= self.piece_due:
            self.piece_due = None
            yield [file.take_piece()] if sources is None else sources.take_pieces()

    def check_end(self) -> bool:
        """Return True if the log has ended; call ``tail.is_finished`` only if a check is due."""
        now = time.monotonic()
        is_due = self.must_check_end or now - self._checked >= self.tail.check_every
        if not self.has_ended and is_due:
            self.has_ended = self.tail.is_finished()
            self.must_check_end = False
            self._checked = now
        return self.has_ended

    @property
    def has_window(self) -> bool:
        """Whether only the lines between two times are read."""
        return self._window is not None

    @property
    def is_open(self) -> bool:
        """Whether the log file is open; a missing or suspended file is not."""
        return self._file.is_open

    def translate_error(self, error: Exception) -> Exception:
        """Return the error to report for an error that was raised while reading."""
        if isinstance(error, FileNotFoundError):
            return missing_log(self.path)
        return unreadable_log(self.path, error) if isinstance(error, OSError) else error

    def suspend(self) -> None:
        """Close the log file until the next read, because too many files are open."""
        self._file.suspend()

    def suspend_if_scarce(self) -> None:
        """Close the log file until the next read if few descriptors are left."""
        if self._file.is_scarce:
            self._file.suspend()

    def close(self) -> None:
        """Close the log file."""
        self._file.close()
