"""Follow one or many log files in one loop."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from torchx_kit.logs.file_logs import FileLog, Key, missing_log, unreadable_log
from torchx_kit.logs.lines import attempt_mark
from torchx_kit.logs.log_file import PIECE_SECONDS, LogFile, SourceLines

if TYPE_CHECKING:
    from torchx_specs.schedulers.closing import Closing

# How many further logs are taken between two reads of the logs that have new lines.
_TAKEN_AT_ONCE = 16
# The pause before the first look at the quiet logs, the one after new lines, and the longest one
# that the number of logs does not make longer, in seconds.
_FIRST_PAUSE, _SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.02, 0.1
# Looks at many logs take at most this part of the time, unless the pause would exceed the limit.
_MOST_LOAD = 0.05
_PAUSE_LIMIT = 1.0

# Size, modification time and number of a file; None for a missing file.
_Stat = tuple[int, int, int] | None


def follow_all(
    logs: Iterable[tuple[Key, FileLog | Exception]],
) -> Iterator[tuple[Key, Iterable[str] | Exception]]:
    """Follow many logs in one thread, and yield blocks of lines as they are written.

    A block also contains the incomplete last line of an ended log and, if the log's
    ``tail.partial`` is True, pieces of a line whose end is not written yet. The caller's thread
    also calls each log's ``tail.is_finished``; a slow call delays every log. The iteration ends
    early when a log's ``tail.closing`` is set.

    Args:
        logs: Keys and their logs. Each pair is taken from the iterable only when its log is about
            to be read. Several logs may have the same key. A log must not have been read before. An
            exception in place of a log is yielded unchanged.

    Yields:
        A key, with lines of its log or the error that ended its log. The lines of one log come in
        order.
    """
    rest = iter(logs)
    quiet = QuietLogs()
    keys: dict[Followed, Key] = {}
    # Logs with new lines take turns, one block at a time, so that a long log does not delay others.
    turns: deque[tuple[Followed, Iterator[Iterable[str]]]] = deque()
    try:
        while not quiet.is_closed():
            taken = list(islice(rest, _TAKEN_AT_ONCE))
            for key, log in taken:
                if isinstance(log, Exception):
                    yield key, log
                    continue
                followed = Followed(log)
                keys[followed] = key
                quiet.end_with(followed.tail.closing)
                turns.append((followed, followed.read_new()))
            if not keys and not taken:
                return
            for followed in quiet.wait(at_once=bool(turns or taken)):
                turns.append((followed, followed.read_new()))
            for _ in range(len(turns)):
                followed, blocks = turns.popleft()
                block: Iterable[str] | Exception | None
                try:
                    block = next(blocks, None)
                except Exception as e:  # an error ends only the log that raised it
                    is_scarce = isinstance(e, OSError) and e.errno in (errno.EMFILE, errno.ENFILE)
                    if is_scarce and any(other.file.is_open for other in keys):
                        quiet.suspend()
                        turns.append((followed, followed.read_new()))
                        continue
                    block = followed.translate_error(e)
                if isinstance(block, Exception):
                    yield keys[followed], block
                elif block is not None:
                    yield keys[followed], followed.log.matching(block)
                    turns.append((followed, blocks))
                    continue
                elif not followed.is_over:
                    quiet.add(followed)
                    continue
                del keys[followed]
                followed.file.close()
    finally:
        for followed in keys:
            followed.file.close()
        quiet.close()


class QuietLogs:
    """The followed logs that have no new lines at the moment.

    All of them are looked at again and again: a look queries the sizes of a log's files. The
    operating system's file events would report changes earlier, but not those of other machines.
    The pauses between the looks grow while nothing changes, and with the time that the looks take.
    """

    def __init__(self) -> None:
        self._signal = threading.Event()
        self._closing: Closing | None = None
        self._closing_calls = ExitStack()
        self._logs: list[Followed] = []
        self._pause = _FIRST_PAUSE
        self._due = 0.0

    def end_with(self, closing: Closing | None) -> None:
        """Let :meth:`wait` return when the scheduler of all logs is closed."""
        if self._closing is None and closing is not None:
            self._closing = closing
            self._closing_calls.enter_context(closing.calling(self._signal.set))

    def is_closed(self) -> bool:
        """Return True once the scheduler was closed."""
        return self._closing is not None and self._closing.is_set()

    def add(self, followed: Followed) -> None:
        """Add a log whose lines were all read."""
        self._logs.append(followed)
        if followed.file.is_scarce:
            followed.file.suspend()

    def suspend(self) -> None:
        """Close the files of all logs until their next reads, because too many files are open."""
        for followed in self._logs:
            followed.file.suspend()

    def wait(self, at_once: bool) -> list[Followed]:
        """Wait for the next look, and remove and return the logs that must be read.

        Args:
            at_once: If True, return immediately, possibly with no logs.
        """
        begun = time.monotonic()
        if begun < self._due:
            if at_once:
                return []
            self._signal.wait(self._due - begun)
            begun = time.monotonic()
        known: dict[str, _Stat] = {}
        quiet: list[Followed] = []
        found: list[Followed] = []
        for followed in self._logs:
            (found if followed.must_read(known) else quiet).append(followed)
        self._logs = quiet
        ended = time.monotonic()
        self._pause = _SHORTEST_PAUSE if found else min(self._pause * 1.5, _LONGEST_PAUSE)
        least = min((ended - begun) / _MOST_LOAD, _PAUSE_LIMIT)
        self._due = ended + max(self._pause, least)
        return found

    def close(self) -> None:
        """Free the resources."""
        self._closing_calls.close()


class Followed:
    """The state of a followed log.

    Args:
        log: The log.

    Attributes:
        log: The log.
        tail: How to follow the log.
        file: The log file.
        has_ended: True once nothing more will be written to the log, or to its window.
        is_over: True once the log has ended and every line was read.
        must_check_end: Whether the next read has to call ``tail.is_finished``.
    """

    def __init__(self, log: FileLog) -> None:
        self.log = log
        self.tail = tail = log.tail
        self.file = LogFile(log.path)
        self.has_ended = False
        self.is_over = False
        self.must_check_end = True
        self._last = log.last
        self._begin = log.begin
        self._checked = 0.0
        self._attempts = 0
        # What the last look has found of the files in ``tail.watch``, and of the log's own files.
        self._watched: Sequence[object] = ()
        self._seen: Sequence[object] = ()
        # When to return the text of an incomplete line; None if there is no such text.
        self._piece_due: float | None = None
        self._sources = SourceLines(list(tail.sources)) if tail.partial and tail.sources else None

    def must_read(self, known: dict[str, _Stat]) -> bool:
        """Return whether the log may have new lines, or may have ended.

        Args:
            known: What the present look has found of files, by path; is added to.
        """
        watched = [_stat(path, known) for path in self.tail.watch]
        own = [_stat(path, known) for path in (self.log.path, *self.tail.sources)]
        self.must_check_end |= watched != self._watched
        has_changed = own != self._seen
        self._watched, self._seen = watched, own
        is_piece_due = self._piece_due is not None and time.monotonic() >= self._piece_due
        try:
            return has_changed or is_piece_due or self.log.window is not None or self.check_end()
        except Exception:  # the next read reports the error
            return True

    def read_new(self) -> Iterator[Iterable[str]]:
        """Yield the unread lines in blocks, and set :attr:`is_over` after the end of the log.

        If ``tail.partial`` is True, also yield pieces of an incomplete line.
        """
        has_new = False
        file, tail, window = self.file, self.tail, self.log.window
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
            stop = size if limit is None else limit
            if begin is not None and file.open(begin):
                if last is not None:
                    stop = file.skip_to_last(last, stop)
                for block in self._read_attempts(stop):
                    has_new = True
                    yield block
                if file.was_replaced():
                    for block in (*file.read_lines(limit), *file.read_incomplete_line()):
                        yield self._unshown(block)
                    file.close()
                    self._begin = 0
                    continue
            elif begin is not None and has_ended and tail.must_exist:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.log.path)
            if has_ended or (limit is not None and file.position >= limit):
                for block in file.read_incomplete_line():
                    yield self._unshown(block)
                if self._sources is not None and (end := self._sources.end()):
                    yield end
                if has_ended and tail.rest is not None:
                    yield from tail.rest()
                self.is_over = True
            elif tail.partial and limit is None and (window is None or file.is_open):
                yield from self._read_pieces(has_new)
            return

    def _read_attempts(self, limit: int | None) -> Iterator[Iterable[str]]:
        """Yield blocks of whole lines up to a position, with a line where each attempt begins."""
        file = self.file
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
        file, sources = self.file, self._sources
        has_piece = file.has_piece() if sources is None else sources.read(file.position)
        now = time.monotonic()
        if not has_piece:
            self._piece_due = None
        elif has_new or self._piece_due is None:
            self._piece_due = now + PIECE_SECONDS
        elif now >= self._piece_due:
            self._piece_due = None
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

    def translate_error(self, error: Exception) -> Exception:
        """Return the error to report for an error that was raised while reading."""
        if isinstance(error, FileNotFoundError):
            return missing_log(self.log.path)
        return unreadable_log(self.log.path, error) if isinstance(error, OSError) else error


def _stat(path: str, known: dict[str, _Stat]) -> _Stat:
    if path not in known:
        try:
            stat = os.stat(path)
            known[path] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        except OSError:
            known[path] = None
    return known[path]
