r"""Reading and following logs that are files: whole lines, every line, in order.

Only ``\n`` ends a line; it stays, and the last line may lack it. Bytes that are no UTF-8 become
U+FFFD. Reading takes little memory however long the log is (a single line has to fit), and while
nothing is written following costs nothing where the system tells of changes
(:mod:`torchx_kit.logs.file_events`), little elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.api import Stream, filter_regex

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_kit.logs.following import Followed

_T = TypeVar("_T")

_LONGEST_POLL = 1.0
_DECODED_AT_ONCE = 1 << 16
_SUFFIXES = {
    Stream.STDOUT: ("out",),
    Stream.STDERR: ("err",),
    Stream.COMBINED: ("out", "err"),
}


class LogTimes(Protocol):
    """Knows when the parts of a log were written, as well as somebody watched."""

    def written_before(self, when: float) -> int | None:
        """Returns how many bytes, in whole lines, were written before ``when`` (epoch seconds).

        None if all there is was, and more may come that was as well.
        """


@dataclass
class Tail:
    """How to follow a log.

    Args:
        is_finished: returns True once nothing more will be written
        watch: files whose change may mean that ``is_finished`` has become true
        check_every: seconds after which ``is_finished`` is asked though nothing has changed
        method: ``events`` of the operating system, ``poll`` (looking again and again, ever less
            often), or ``auto``: events where there are any, but not for network file systems, where
            other machines' writes cause none
        longest_poll: seconds between two looks, at most
        is_quick: ``is_finished`` answers at once, so that many such logs may be followed in one
            thread, none waiting for what is asked for another
    """

    is_finished: Callable[[], bool]
    watch: Sequence[str] = ()
    check_every: float = 2.0
    method: Literal["auto", "events", "poll"] = "auto"
    longest_poll: float = _LONGEST_POLL
    is_quick: bool = False


def log_lines(
    path: str | os.PathLike[str],
    regex: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    times: LogTimes | None = None,
    tail: Tail | None = None,
) -> FileLog:
    r"""Returns the lines of a log, lazily.

    With ``tail``, lines are given as they are completed, an unfinished one only when nothing more
    will come; the file need not exist yet, and may be replaced or cut off by log rotation. Without,
    the lines that are there now.

    Args:
        path: the log
        regex: only lines in which this is found (:func:`re.search`)
        since: only lines written at that time or later; without a time zone it is local time
        until: only lines written before that time
        times: needed for ``since`` and ``until``
        tail: follow the log, in this way

    Raises:
        BackendError: (while reading) the log cannot be read; without ``tail`` also if there is none
        RequestError: ``regex`` is not a regular expression
        ValueError: ``since`` or ``until`` without ``times``
    """
    window = None
    if since is not None or until is not None:
        if times is None:
            raise ValueError("since and until need times: nobody recorded when lines were written")
        window = Window(times, since, until)
    if regex is not None:
        try:
            re.compile(regex)
        except re.error as e:
            raise RequestError(f"'{regex}' is not a regular expression: {e}") from None
    return FileLog(os.fspath(path), regex, tail, window)


class FileLog(Iterator[str]):
    """The lines of a log, as :func:`log_lines` returns them; :func:`follow_all` takes many."""

    def __init__(
        self, path: str, regex: str | None, tail: Tail | None, window: Window | None
    ) -> None:
        self._path = path
        self._regex = regex
        self._tail = tail
        self._window = window
        self._lines: Iterator[str] | None = None

    @property
    def is_shareable(self) -> bool:
        """True if it may be followed with others in one thread."""
        return self._tail is not None and self._tail.is_quick

    def __iter__(self) -> Iterator[str]:
        if self._lines is None:
            if self._tail is None:
                blocks = _there(self._path, self._window)
            else:
                blocks = _followed(self.followed())
            self._lines = iter(self.matching(chain.from_iterable(blocks)))
        return self._lines

    def __next__(self) -> str:
        return next(iter(self))

    def followed(self) -> Followed:
        """Return what :func:`torchx_kit.logs.following.follow` needs to follow this log.

        Raises:
            ValueError: The log is not followed: it has no :class:`Tail`.
        """
        from torchx_kit.logs.following import Followed

        if self._tail is None:
            raise ValueError(
                f"{self._path} cannot be followed: log_lines was called without a tail"
            )
        return Followed(self._path, self._tail, self._window)

    def matching(self, lines: Iterable[str]) -> Iterable[str]:
        """Return the lines in which the log's regular expression is found; all without one."""
        return lines if self._regex is None else filter_regex(self._regex, lines)


def follow_all(
    logs: Iterable[tuple[_T, FileLog | Exception]], most: int
) -> Iterator[tuple[_T, Iterable[str] | Exception]]:
    """Follow many logs in one thread, and yield blocks of lines as they are written.

    Args:
        logs: The logs, each with a key. A log has a :class:`Tail` and was not read before. An
            exception instead of a log is yielded as it is. The logs are taken one by one, as there
            is room for them.
        most: How many logs are followed at the same time.

    Yields:
        A key, and lines of its log or the error that ended its log. The lines of one log come in
        order.
    """
    from torchx_kit.logs.following import follow

    followed = (
        ((key, log), log if isinstance(log, Exception) else log.followed()) for key, log in logs
    )
    for (key, log), block in follow(followed, most):
        if isinstance(block, Exception) or isinstance(log, Exception):
            yield key, block
        else:
            yield key, log.matching(block)


def merged(logs: Sequence[FileLog]) -> Iterator[str]:
    r"""Yields the whole lines of followed logs of one replica, each with its ``\n`` when it comes.

    One that cannot be read (any more) ends all of them with its error.
    """
    for _, found in follow_all(enumerate(logs), len(logs)):
        if isinstance(found, Exception):
            raise found
        yield from prefixed("", found)


def stream_files(base: str, stream: Stream) -> list[str]:
    """Returns the files ``<base>.out`` and ``<base>.err`` as far as they hold that stream."""
    return [f"{base}.{suffix}" for suffix in _SUFFIXES[stream]]


def read_files(paths: Iterable[str], regex: str | None) -> Iterator[str]:
    """Returns the lines that are there now, those of one file after those of the other.

    Raises:
        BackendError: (while reading) a file can't be read
        RequestError: ``regex`` is no regular expression
    """
    return chain.from_iterable([log_lines(path, regex) for path in paths])


def follow_files(paths: Iterable[str], regex: str | None, tail: Tail) -> Iterator[str]:
    """Returns the lines of one or more files as they are written, each when it comes.

    Raises:
        BackendError: (while reading) a file can't be read
        RequestError: ``regex`` is no regular expression
    """
    logs = [log_lines(path, regex, tail=tail) for path in paths]
    return logs[0] if len(logs) == 1 else merged(logs)


def prefixed(prefix: str, lines: Iterable[str]) -> Iterator[str]:
    r"""Returns each line behind ``prefix`` and with its ``\n``, also where the last one lacks it.

    For merging the logs of several replicas: what is written in one call is one whole line.
    """
    for line in lines:
        yield f"{prefix}{line}" if line.endswith("\n") else f"{prefix}{line}\n"


def _followed(log: Followed) -> Iterator[Iterable[str]]:
    """Yields the lines of one log as they come, in blocks."""
    from torchx_kit.logs.following import follow

    for _, block in follow(iter([(None, log)]), 1):
        if isinstance(block, Exception):
            raise block
        yield block


def _there(path: str, window: Window | None) -> Iterator[Iterable[str]]:
    """Yields the lines that are there now, in blocks."""
    try:
        if window is None:
            # the quickest of all: the file's own iterator, once it decodes more than 8 KiB at a
            # time, which CPython has no public way to say
            with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
                lines._CHUNK_SIZE = _DECODED_AT_ONCE  # type: ignore[attr-defined]
                yield lines
        elif (begin := window.begin()) is not None:
            from torchx_kit.logs.log_file import LogFile

            log = LogFile(path)
            try:
                if not log.open(begin):
                    raise no_log(path)
                yield from log.lines(window.end())
                yield from log.rest()
            finally:
                log.close()
    except FileNotFoundError:
        raise no_log(path) from None
    except OSError as e:
        raise cannot_read(path, e) from e


def no_log(path: str) -> BackendError:
    """Returns the error for a log that is not there."""
    return BackendError(f"no log at {path}")


def cannot_read(path: str, error: OSError) -> BackendError:
    """Returns the error for a log that cannot be read."""
    return BackendError(f"cannot read {path}: {error.strerror or error}")


class Window:
    """The part of a log between two times, as positions in the file."""

    def __init__(self, times: LogTimes, since: datetime | None, until: datetime | None) -> None:
        self._times = times
        self._since = since.timestamp() if since is not None else None
        self._until = until.timestamp() if until is not None else None

    def begin(self) -> int | None:
        """Where the first line begins; None if there is none yet."""
        return 0 if self._since is None else self._times.written_before(self._since)

    def is_over(self) -> bool:
        """Returns True once nothing that is written can still belong to it."""
        return self._until is not None and time.time() >= self._until

    def end(self) -> int | None:
        """Where the last line ends; None if it is still to be written."""
        return None if self._until is None else self._times.written_before(self._until)
