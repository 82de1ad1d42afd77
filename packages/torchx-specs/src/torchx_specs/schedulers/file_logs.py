r"""Reading and following logs that are files: whole lines, every line, in order.

Only ``\n`` ends a line; it stays, and the last line may lack it. Bytes that are no UTF-8 become
U+FFFD. Reading takes little memory however long the log is (a single line has to fit), and while
nothing is written following costs nothing where the system tells of changes
(:mod:`torchx_specs.schedulers.file_events`), little elsewhere.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, Protocol

from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.api import filter_regex, split_lines

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_specs.schedulers.file_events import Watcher

BLOCK_BYTES = 1 << 16
# A writer in full swing makes an event per write; reading that often costs more than it writes.
_BUSY_SECONDS = 0.002
_FIRST_LOOKS = 5
_FIRST_SECONDS = 0.002
_SHORTEST_POLL = 0.02
_LONGEST_POLL = 1.0


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
    """

    is_finished: Callable[[], bool]
    watch: Sequence[str] = ()
    check_every: float = 2.0
    method: Literal["auto", "events", "poll"] = "auto"
    longest_poll: float = _LONGEST_POLL


def log_lines(
    path: str | os.PathLike[str],
    regex: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    times: LogTimes | None = None,
    tail: Tail | None = None,
) -> Iterable[str]:
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
        window = _Window(times, since, until)
    lines: Iterable[str] = chain.from_iterable(_blocks(os.fspath(path), tail, window))
    if regex is None:
        return lines
    try:
        return filter_regex(regex, lines)
    except re.error as e:
        raise RequestError(f"'{regex}' is not a regular expression: {e}") from None


def prefixed(prefix: str, lines: Iterable[str]) -> Iterator[str]:
    r"""Returns each line behind ``prefix`` and with its ``\n``, also where the last one lacks it.

    For merging the logs of several replicas: what is written in one call is one whole line.
    """
    for line in lines:
        yield f"{prefix}{line}" if line.endswith("\n") else f"{prefix}{line}\n"


class _Window:
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


def _blocks(path: str, tail: Tail | None, window: _Window | None) -> Iterator[Iterable[str]]:
    log = _Log(path)
    pause = None
    try:
        if tail is None:
            if window is None:
                # the quickest of all: the file's own iterator
                with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
                    yield file
            elif (begin := window.begin()) is not None:
                if not log.open(begin):
                    raise BackendError(f"no log at {path}")
                yield from log.lines(window.end())
                yield from log.rest()
            return
        pause = _Pause(path, tail)
        finished = False
        while True:
            # asked before reading: what was written before the end is then read for certain
            finished = finished or pause.is_finished() or (window is not None and window.is_over())
            if finished:
                log.refresh()
            begin = window.begin() if window and not log.position else 0
            # likewise: what is there now is older than an end that nobody has seen yet
            size = log.size() if window else None
            limit = window.end() if window else None
            if begin is not None and log.open(begin):
                for block in log.lines(size if limit is None else limit):
                    yield block
                    pause.shorten()
                if log.was_replaced():
                    yield from log.lines(limit)
                    yield from log.rest()
                    log.close()
                    pause.shorten()
                    continue
            if finished or (limit is not None and log.position >= limit):
                yield from log.rest()
                return
            pause.wait(log.is_open)
    except FileNotFoundError:
        raise BackendError(f"no log at {path}") from None
    except OSError as e:
        raise BackendError(f"cannot read {path}: {e.strerror or e}") from e
    finally:
        log.close()
        if pause is not None:
            pause.close()


class _Log:
    """A log that is open, and how far it was read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._held = bytearray()  # the beginning of an unfinished line
        self.position = 0

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def open(self, position: int) -> bool:
        """Opens the log at ``position`` unless it is open; returns False if there is none."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            self.position = position
        return True

    def refresh(self) -> None:
        """Makes what another machine has written visible, on a shared file system.

        NFS keeps for seconds what it knows of an open file, or of one that isn't there; opening a
        file, or its folder, asks the server anew.
        """
        try:
            if self._fd < 0:
                os.scandir(os.path.dirname(self._path) or ".").close()
                return
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # whoever reads it tells of it
        if os.path.sameopenfile(fd, self._fd):
            fd, self._fd = self._fd, fd
        os.close(fd)

    def size(self) -> int:
        """Returns the size of the log as it is now."""
        try:
            return os.stat(self._path).st_size
        except FileNotFoundError:
            return 0

    def lines(self, limit: int | None) -> Iterator[Iterable[str]]:
        """Returns the whole lines up to ``limit``, or up to the end as it is now, in blocks."""
        fd = self._fd
        size = BLOCK_BYTES
        while limit is None or (size := min(BLOCK_BYTES, limit - self.position)) > 0:
            block = os.pread(fd, size, self.position)
            if not block:
                return
            self.position += len(block)
            end = block.rfind(b"\n") + 1
            if not end:
                self._held += block
                continue
            if self._held:
                self._held += block[:end]
                text = self._held.decode("utf-8", "replace")
                self._held = bytearray()
            else:
                text = block[:end].decode("utf-8", "replace")
            if end < len(block):
                self._held += block[end:]
            # StringIO splits at "\n" only, and at C speed, but holds four bytes a character
            yield io.StringIO(text, newline="\n") if len(text) < 1 << 20 else split_lines(text)

    def rest(self) -> Iterator[Iterable[str]]:
        """Returns the unfinished last line, if there is one."""
        if self._held:
            line = self._held.decode("utf-8", "replace")
            self._held = bytearray()
            yield (line,)

    def was_replaced(self) -> bool:
        """Returns True if the path names another file by now, or the file was cut off."""
        if os.fstat(self._fd).st_size < self.position:
            return True
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return False  # between the two steps of a rotation, or removed
        mine = os.fstat(self._fd)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        self.position = 0
        if fd >= 0:
            os.close(fd)


class _Pause:
    """Waits until there may be more to read, or the end to see."""

    def __init__(self, path: str, tail: Tail) -> None:
        self._path = path
        self._tail = tail
        self._seconds = _SHORTEST_POLL
        self._asked = 0.0
        self._ask = True
        self._looks = 0
        self._watcher: Watcher | None = None
        self._log_key: int | None = None
        self._folder_key: int | None = None
        self._other_keys: set[int] = set()
        self._stamps = self._watched_stamps()

    def is_finished(self) -> bool:
        """Asks whether the end has come, unless there is no reason to ask again yet."""
        now = time.monotonic()
        if not self._ask and now - self._asked < self._tail.check_every:
            return False
        self._ask = False
        self._asked = now
        return self._tail.is_finished()

    def shorten(self) -> None:
        """Tells that something was read: more may follow soon."""
        self._seconds = _SHORTEST_POLL

    def wait(self, log_is_open: bool) -> None:
        """Waits for an event, or for the next look."""
        self._looks += 1
        if self._looks < _FIRST_LOOKS:
            # much that is followed is over in a moment: not worth setting up events for
            self._look_after(_FIRST_SECONDS * self._looks)
        elif self._looks == _FIRST_LOOKS:
            self._begin()
        elif self._watcher:
            self._wait_for_event(self._watcher, log_is_open)
        else:
            self._look_after(min(self._seconds, self._tail.longest_poll))
            self._seconds *= 1.5

    def _look_after(self, seconds: float) -> None:
        time.sleep(seconds)
        stamps = self._watched_stamps()
        self._ask |= stamps != self._stamps
        self._stamps = stamps

    def close(self) -> None:
        if self._watcher:
            self._watcher.close()

    def _begin(self) -> None:
        self._watcher = self._open_watcher()
        if self._watcher:
            for other in self._tail.watch:
                self._watch_other(self._watcher, other)
        else:
            self._stamps = self._watched_stamps()
        self._ask = True  # it may have ended before it was watched

    def _open_watcher(self) -> Watcher | None:
        if self._tail.method == "poll":
            return None
        from torchx_specs.schedulers.file_events import Watcher, is_on_network

        try:
            if self._tail.method == "auto" and is_on_network(self._path):
                return None
            return Watcher()
        except OSError:
            if self._tail.method == "events":
                raise
            return None

    def _watch_other(self, watcher: Watcher, path: str) -> None:
        from torchx_specs.schedulers.file_events import GONE, MODIFIED

        try:
            self._other_keys.add(watcher.watch(path, MODIFIED | GONE))
        except OSError:
            pass  # then the end is seen a little later, by check_every

    def _wait_for_event(self, watcher: Watcher, log_is_open: bool) -> None:
        from torchx_specs.schedulers.file_events import APPEARED, GONE, MODIFIED, nearest_folder

        patience = self._tail.check_every - (time.monotonic() - self._asked)
        try:
            if self._folder_key is None:
                folder = nearest_folder(self._path)
                self._folder_key = watcher.watch(folder, APPEARED | GONE)
                if not log_is_open:
                    if folder != os.path.dirname(os.path.abspath(self._path)):
                        self._folder_key = None  # look again which folder is the nearest
                        patience = min(patience, self._tail.longest_poll)
                    elif os.path.exists(self._path):
                        return  # it appeared before it was watched
            if log_is_open and self._log_key is None:
                self._log_key = watcher.watch(self._path, MODIFIED | GONE)
                return  # what was written before it was watched is to be read first
        except FileNotFoundError:
            self._folder_key = self._log_key = None
            patience = min(patience, _SHORTEST_POLL)
        except OSError:  # no watch is left
            watcher.close()
            self._watcher = None
            return
        begun = time.monotonic()
        happened = watcher.wait(patience)
        for key, mask in happened.items():
            if mask & GONE or key == self._folder_key:
                # another file may have taken its place
                if self._log_key is not None:
                    watcher.forget(self._log_key)
                self._log_key = None
            if mask & GONE and key == self._folder_key:
                self._folder_key = None
            if key in self._other_keys:
                self._ask = True
        if not self._ask and happened and time.monotonic() - begun < _BUSY_SECONDS:
            time.sleep(_BUSY_SECONDS)

    def _watched_stamps(self) -> list[tuple[int, int]]:
        stamps = []
        for path in self._tail.watch:
            try:
                found = os.stat(path)
                stamps.append((found.st_size, found.st_mtime_ns))
            except OSError:
                stamps.append((-1, 0))
        return stamps
