r"""Read and follow log files: whole lines (pieces only on request), in order, without loss.

Only ``\n`` ends a line. Each returned line includes its ``\n``; the last line may lack one. Bytes
that are not UTF-8 become U+FFFD. To limit the memory that reading needs, a line is cut after 8 MiB,
and a remark replaces the rest. A log must be a regular file.

A caller describes a log by :func:`log_lines`. Iterating over the result yields the lines;
:func:`~torchx_kit.logs.following.follow_all` follows any number of logs in one loop.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from torchx_kit.logs.lines import compile_regex, filter_regex
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.log_items import PartialLine

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_specs.schedulers.closing import Closing

Key = TypeVar("Key")

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


class Tail(NamedTuple):
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
        must_exist: Whether it is an error if the file of an ended log does not exist.
    """

    is_finished: Callable[[], bool]
    watch: Sequence[str] = ()
    check_every: float = 2.0
    partial: bool = False
    sources: Sequence[str] = ()
    closing: Closing | None = None
    rest: Callable[[], Iterator[Iterable[str]]] | None = None
    attempts: Callable[[], Sequence[int]] | None = None
    must_exist: bool = False


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
    return FileLog(os.fspath(path), regex, tail, window, last)


class FileLog(Iterator[str]):
    """A log: which lines to read, and an iterator of them; :func:`log_lines` returns one.

    Args:
        path: The log file.
        regex: Only lines in which this regular expression is found; None for all lines.
        tail: How to follow the log; None reads the lines that it has now.
        window: Limits the log to the lines written between two times; None for all lines.
        last: How many of the existing lines are returned, counted from the end; None for all.
        begin: Position of the first line to read, in bytes; must be 0 if ``window`` is given.
    """

    def __init__(
        self,
        path: str,
        regex: str | None,
        tail: Tail | None,
        window: Window | None = None,
        last: int | None = None,
        begin: int = 0,
    ) -> None:
        # The present lines of a log are read as if nothing more would be written.
        tail = tail or Tail(lambda: True, must_exist=True)
        if regex is not None:
            tail = tail._replace(partial=False, attempts=None)
        self.path = path
        self.regex = regex
        self.tail = tail
        self.window = window
        self.last = last
        self.begin = begin
        self._lines: Iterator[str] | None = None

    def __iter__(self) -> Iterator[str]:
        if self._lines is None:
            # A generator of this object would form a reference cycle, which keeps the file open.
            self._lines = chain.from_iterable(copy.copy(self)._blocks())
        return self._lines

    def __next__(self) -> str:
        return next(iter(self))

    def matching(self, lines: Iterable[str]) -> Iterable[str]:
        """Return the lines in which ``regex`` is found; all lines if ``regex`` is None."""
        return lines if self.regex is None else filter_regex(self.regex, lines)

    def _blocks(self) -> Iterator[Iterable[str]]:
        from torchx_kit.logs.following import follow_all

        for _, block in follow_all([(None, self)]):
            if isinstance(block, Exception):
                raise block
            yield block


def file_log_blocks(
    logs: Iterable[tuple[Key, FileLog | Exception]], *, should_tail: bool
) -> Iterator[tuple[Key, Iterable[str] | Exception]]:
    """Yield blocks of lines of many log files, in the caller's thread.

    Args:
        logs: As for :func:`~torchx_kit.logs.following.follow_all`.
        should_tail: If True, follow all logs. If False, read one log after the other.

    Yields:
        A key, with lines of its log or the error that ended its log. The lines of one log come in
        order.
    """
    from torchx_kit.logs.following import follow_all

    if should_tail:
        yield from follow_all(logs)
        return
    for pair in logs:
        yield from follow_all([pair])


def merged(logs: Sequence[FileLog]) -> Iterator[str]:
    r"""Yield the lines of several followed logs of one replica, each line with its ``\n``.

    Pieces of lines, which ``Tail.partial`` requests, are yielded as well.

    Raises:
        BackendError: One of the logs cannot be read. The others are not followed any longer.
    """
    from torchx_kit.logs.following import follow_all

    return merged_blocks(follow_all(enumerate(logs)))


def merged_blocks(blocks: Iterable[tuple[int, Iterable[str] | Exception]]) -> Iterator[str]:
    """Yield the lines of blocks, each with the index of its log; see :func:`merged`."""
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
    paths: Sequence[str], tail: Tail, begins: Sequence[int] | None = None
) -> Iterator[str]:
    """Return an iterator of the lines of one or more log files as they are written.

    Args:
        paths: The files.
        tail: How to follow the files.
        begins: Position of the first line to read of each file, in bytes; None for 0.

    Raises:
        BackendError: While reading: a file cannot be read.
    """
    begins = begins or [0] * len(paths)
    logs = [
        FileLog(path, None, tail, begin=begin) for path, begin in zip(paths, begins, strict=True)
    ]
    return logs[0] if len(logs) == 1 else merged(logs)


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
