r"""Read and follow log files: whole lines (pieces only on request), in order, without loss.

Only ``\n`` ends a line. Each returned line includes its ``\n``; the last line may lack one. Bytes
that are not UTF-8 become U+FFFD. To limit the memory that reading needs, a line is cut after 8 MiB,
and a remark replaces the rest; a file of at most 32 MiB that is read as a whole keeps its lines. A
log must be a regular file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

from torchx_kit.logs.lines import compile_regex, filter_regex
from torchx_kit.logs.regular_files import open_regular
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.log_items import PartialLine

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_kit.logs.following import Followed
    from torchx_specs.schedulers.closing import Closing

_T = TypeVar("_T")

_DECODED_CHUNK_BYTES = 1 << 16
# Python's file iterator reads each line whole, so use it only for files of up to this number of
# bytes: in a larger file, one line may need too much memory.
_SMALL_BYTES = 1 << 25
_SUFFIXES = {
    Stream.STDOUT: ("out",),
    Stream.STDERR: ("err",),
    Stream.COMBINED: ("out", "err"),
}


class LogTimes(Protocol):
    """Maps times to positions in a log file."""

    def written_before(self, when: float) -> int | None:
        """Return how many bytes, in whole lines, were written before ``when``.

        Args:
            when: Seconds since 1970.

        Returns:
            The number of bytes; None if all lines of the log were written before ``when`` and more
            such lines may follow.
        """


@dataclass
class Tail:
    """How to follow a log.

    Args:
        is_finished: Returns True once nothing more will be written.
        watch: Files whose change may mean that ``is_finished`` has become true.
        check_every: How often to call ``is_finished`` while no file changes, in seconds.
        partial: Whether to also yield text that was written without a newline, about 0.2 seconds
            later, as a :class:`~torchx_specs.schedulers.log_items.PartialLine`. With ``regex``,
            only whole lines are yielded.
        sources: Files whose whole lines another process merges into the log. With ``partial``,
            the incomplete last lines of these files are yielded.
        closing: Ends the log when the scheduler is closed; None if nothing closes it.
        rest: Called at the end of the log; yields blocks of lines that the file lacks.
        attempts: Returns where each attempt after the first one begins, in bytes. A line such as
            ``--- attempt 2 ---`` is yielded there. A position must be returned before the attempt
            writes. With ``regex``, the function is not called.
    """

    is_finished: Callable[[], bool]
    watch: Sequence[str] = ()
    check_every: float = 2.0
    partial: bool = False
    sources: Sequence[str] = ()
    closing: Closing | None = None
    rest: Callable[[], Iterator[Iterable[str]]] | None = None
    attempts: Callable[[], Sequence[int]] | None = None


def log_lines(
    path: str | os.PathLike[str],
    regex: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    times: LogTimes | None = None,
    tail: Tail | None = None,
    last: int | None = None,
) -> FileLog:
    r"""Return an iterator of the lines of a log.

    Without ``tail``, these are the lines that the log has now. With ``tail``, each line is yielded
    once it is complete, and an incomplete last line once nothing more will be written; with
    ``tail.partial``, pieces of a line are yielded earlier. The file of a followed log may be
    created later, and log rotation may replace or truncate it.

    Args:
        path: The log file.
        regex: Return only lines in which this regular expression is found (:func:`re.search`).
        since: Return only lines written at this time or later; a time without a zone is local time.
        until: Return only lines written before this time.
        times: Maps times to positions in the log; required by ``since`` and ``until``.
        tail: How to follow the log; None does not follow it.
        last: How many existing lines to return, counted from the end; None for all. Lines in which
            ``regex`` is not found are counted, too. With ``tail``, lines that are added later are
            also returned.

    Raises:
        BackendError: While reading: the log cannot be read or, without ``tail``, does not exist.
        RequestError: ``regex`` is not a regular expression.
        ValueError: ``since`` or ``until`` is given without ``times``.
    """
    window = None
    if since is not None or until is not None:
        if times is None:
            raise ValueError(
                "since and until need the argument times, which knows when lines were written"
            )
        window = Window(times, since, until)
    if regex is not None:
        compile_regex(regex)
    return FileLog(os.fspath(path), regex, tail, window, last=last)


class FileLog(Iterator[str]):
    """The iterator that :func:`log_lines` returns."""

    def __init__(
        self,
        path: str,
        regex: str | None,
        tail: Tail | None,
        window: Window | None,
        *,
        last: int | None = None,
        begin: int = 0,
    ) -> None:
        self._path = path
        self._regex = regex
        if tail is not None and regex is not None:
            tail = replace(tail, partial=False, attempts=None)
        self._tail = tail
        self._window = window
        self._last = last
        self._begin = begin
        self._lines: Iterator[str] | None = None

    def __iter__(self) -> Iterator[str]:
        if self._lines is None:
            if self._tail is None:
                blocks = _existing_blocks(self._path, self._window, self._last)
            else:
                blocks = _followed_blocks(self.followed())
            self._lines = iter(self.matching(chain.from_iterable(blocks)))
        return self._lines

    def __next__(self) -> str:
        return next(iter(self))

    def followed(self) -> Followed:
        """Return this log as an argument for :func:`torchx_kit.logs.following.follow`.

        Raises:
            ValueError: The log is not followed: it has no :class:`Tail`.
        """
        from torchx_kit.logs.following import Followed

        if self._tail is None:
            raise ValueError(
                f"{self._path} cannot be followed: log_lines was called without a tail"
            )
        return Followed(self._path, self._tail, self._window, self._last, self._begin)

    def matching(self, lines: Iterable[str]) -> Iterable[str]:
        """Return the lines in which ``regex`` is found; all lines if ``regex`` is None."""
        return lines if self._regex is None else filter_regex(self._regex, lines)


def follow_all(
    logs: Iterable[tuple[_T, FileLog | Exception]],
) -> Iterator[tuple[_T, Iterable[str] | Exception]]:
    """Follow many logs in one thread, and yield blocks of lines as they are written.

    Args:
        logs: Keys and their logs. Each log must have a :class:`Tail`, and must not have been read
            before. An exception in place of a log is yielded unchanged.

    Yields:
        A key, with lines of its log or the error that ended its log. The lines of one log come in
        order.
    """
    from torchx_kit.logs.following import follow

    followed = (
        ((key, log), log if isinstance(log, Exception) else log.followed()) for key, log in logs
    )
    for (key, log), block in follow(followed):
        if isinstance(block, Exception) or isinstance(log, Exception):
            yield key, block
        else:
            yield key, log.matching(block)


def merged(logs: Sequence[FileLog]) -> Iterator[str]:
    r"""Yield the lines of several followed logs of one replica, each line with its ``\n``.

    Pieces of lines, which ``Tail.partial`` requests, are yielded as well.

    Raises:
        BackendError: One of the logs cannot be read. The others are not followed any longer.
    """
    return merged_blocks(follow_all(enumerate(logs)))


def merged_blocks(blocks: Iterable[tuple[int, Iterable[str] | Exception]]) -> Iterator[str]:
    """Yield the lines of the blocks that :func:`follow_all` yields; see :func:`merged`."""
    open_log: int | None = None  # index of the log whose last item was a piece of a line
    for k, block in blocks:
        if isinstance(block, Exception):
            raise block
        for line in block:
            if open_log not in (None, k):
                yield "\n"
                open_log = None
            if isinstance(line, PartialLine):
                open_log = k
                yield line
            elif line or open_log is not None:
                open_log = None
                yield line if line.endswith("\n") else f"{line}\n"


def stream_files(base: str, stream: Stream) -> list[str]:
    """Return the paths of a stream's files: ``<base>.out``, ``<base>.err`` or both."""
    return [f"{base}.{suffix}" for suffix in _SUFFIXES[stream]]


def follow_files(
    paths: Iterable[str], regex: str | None, tail: Tail, last: int | None = None
) -> Iterator[str]:
    """Return an iterator of the lines of one or more log files as they are written.

    Args:
        paths: The files.
        regex: Return only lines in which this regular expression is found.
        tail: How to follow the files.
        last: How many existing lines to return, counted from the end, as if the files were joined
            in the order of ``paths``; None for all.

    Raises:
        BackendError: While reading: a file cannot be read.
        RequestError: ``regex`` is not a regular expression.
    """
    paths = list(paths)
    begins = [0] * len(paths) if last is None else _last_lines_of_files(paths, last)
    if regex is not None:
        compile_regex(regex)
    logs = [
        FileLog(path, regex, tail, None, begin=begin)
        for path, begin in zip(paths, begins, strict=True)
    ]
    return logs[0] if len(logs) == 1 else merged(logs)


def _last_lines_of_files(paths: list[str], last: int) -> list[int]:
    """Return, for each file, the position in bytes where its part of the last lines begins."""
    from torchx_kit.logs.log_file import find_last_lines

    begins = [0] * len(paths)
    for i in reversed(range(len(paths))):
        try:
            fd = open_regular(paths[i], os.O_RDONLY)
        except FileNotFoundError:
            continue  # the file is created later
        except OSError as e:
            raise unreadable_log(paths[i], e) from e
        try:
            begins[i], count = find_last_lines(fd, last, 0, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        last -= count
    return begins


def _followed_blocks(log: Followed) -> Iterator[Iterable[str]]:
    from torchx_kit.logs.following import follow

    for _, block in follow(iter([(None, log)])):
        if isinstance(block, Exception):
            raise block
        yield block


def _existing_blocks(path: str, window: Window | None, last: int | None) -> Iterator[Iterable[str]]:
    try:
        if window is None:
            fd = open_regular(path, os.O_RDONLY)
            # Python's file iterator is the fastest reader if it decodes more than 8 KiB at once.
            # CPython has no public setting for the chunk size, so set the private attribute.
            with open(fd, encoding="utf-8", errors="replace", newline="\n") as lines:
                size = os.fstat(fd).st_size
                if size <= _SMALL_BYTES:
                    lines._CHUNK_SIZE = _DECODED_CHUNK_BYTES  # type: ignore[attr-defined]
                    yield lines if last is None else _last_lines(lines, last, size)
                    return
        begin = 0 if window is None else window.begin()
        if begin is not None:
            from torchx_kit.logs.log_file import LogFile

            log = LogFile(path)
            try:
                if not log.open(begin):
                    raise missing_log(path)
                end = None if window is None else window.end()
                if last is not None:
                    end = log.skip_to_last(last, end)
                yield from log.read_lines(end)
                yield from log.read_incomplete_line()
            finally:
                log.close()
    except FileNotFoundError:
        raise missing_log(path) from None
    except OSError as e:
        raise unreadable_log(path, e) from e


def _last_lines(lines: TextIO, last: int, size: int) -> Iterator[str]:
    from torchx_kit.logs.log_file import find_last_lines

    position, count = find_last_lines(lines.fileno(), last, 0, size)
    lines.buffer.seek(position)
    return islice(lines, count)


def missing_log(path: str) -> BackendError:
    """Return the error for a log that does not exist."""
    return BackendError(f"no log at {path}")


def unreadable_log(path: str, error: OSError) -> BackendError:
    """Return the error for a log that cannot be read."""
    return BackendError(f"cannot read {path}: {error.strerror or error}")


class Window:
    """The part of a log file that was written between two times.

    Args:
        times: Maps times to positions in the log.
        since: When the part begins; None for the beginning of the log.
        until: When the part ends; None for the end of the log.
    """

    def __init__(self, times: LogTimes, since: datetime | None, until: datetime | None) -> None:
        self._times = times
        self._since = since.timestamp() if since is not None else None
        self._until = until.timestamp() if until is not None else None

    def begin(self) -> int | None:
        """Return the position of the first line in bytes; None while the window has no line."""
        return 0 if self._since is None else self._times.written_before(self._since)

    def is_over(self) -> bool:
        """Return True once ``until`` has passed, so that new lines are outside of the window."""
        return self._until is not None and time.time() >= self._until

    def end(self) -> int | None:
        """Return the position after the last line to read, in bytes; None if lines may follow."""
        return None if self._until is None else self._times.written_before(self._until)
