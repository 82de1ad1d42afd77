"""Following logs that are files: one of them, or many in one thread.

While nothing is written, following costs nothing where the system tells of changes
(:mod:`torchx_kit.logs.file_events`), little elsewhere: it is looked ever less often.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from torchx_kit.logs.file_logs import cannot_read, no_log
from torchx_kit.logs.log_file import LogFile
from torchx_kit.logs.waiting import FEW, SHORTEST_POLL, Waiting

if TYPE_CHECKING:
    from torchx_kit.logs.file_logs import Tail, Window

_Key = TypeVar("_Key")


def follow(
    logs: Iterator[tuple[_Key, Followed | Exception]], most: int
) -> Iterator[tuple[_Key, Iterable[str] | Exception]]:
    """Yields blocks of whole lines of several logs, each with the key of its log.

    One that cannot be read (any more) yields the error, and nothing after it.

    Args:
        logs: the logs by their keys, taken as there is room for them; an exception instead of a
            log is yielded as it is
        most: how many of them are followed at the same time
    """
    waiting = Waiting()
    keys: dict[Followed, _Key] = {}
    # those with something to read: a block of each in turn, so that none waits for another's end
    turns: deque[tuple[Followed, Iterator[Iterable[str]]]] = deque()
    more = True
    try:
        while True:
            for _ in range(min(FEW, most - len(keys)) if more else 0):
                log = next(logs, None)
                if log is None:
                    more = False
                    break
                key, followed = log
                if isinstance(followed, Exception):
                    yield key, followed
                    continue
                keys[followed] = key
                turns.append((followed, followed.look()))
            if not keys and not more:
                return
            has_room = more and len(keys) < most
            for followed in waiting.wait(at_once=bool(turns) or has_room):
                turns.append((followed, followed.look()))
            for _ in range(len(turns)):
                followed, blocks = turns.popleft()
                found: Iterable[str] | Exception | None
                try:
                    found = next(blocks, None)
                    if found is None and not followed.is_over:
                        waiting.rest(followed)
                except Exception as e:  # of this log alone
                    found = followed.explained(e)
                if found is not None:
                    yield keys[followed], found
                    if not isinstance(found, Exception):
                        turns.append((followed, blocks))
                        continue
                if found is not None or followed.is_over:
                    del keys[followed]
                    waiting.forget(followed)
                    followed.close()
    finally:
        for followed in keys:
            followed.close()
        waiting.close()


class Followed:
    """A log that is followed.

    Args:
        path: the log
        tail: how it is followed
        window: the times to which its lines are limited

    Attributes:
        has_ended: True once nothing more is written to it
        is_over: True once all of it was read
        ask: True if there is a reason to ask whether the end has come
        looks: how often it was looked at
        pause: seconds until the next look, where nobody tells of changes
        due: when it is to be looked at again, None while it is not waited for
        has_events: the system tells of its changes
        stamps: what the files that may tell of its end looked like
        stirred: something has happened to it since it was last looked at
        log_key, folder_key, other_keys: what is watched of it
        keys: all that is watched for it
    """

    def __init__(self, path: str, tail: Tail, window: Window | None = None) -> None:
        self.path = path
        self.tail = tail
        self._window = window
        self._file = LogFile(path)
        self.has_ended = False
        self._asked = 0.0
        self.is_over = False
        self.ask = True
        self.looks = 0
        self.pause = SHORTEST_POLL
        self.due: float | None = None
        self.has_events = False
        self.stirred = False
        self.stamps: list[tuple[int, int]] = []
        self.log_key: int | None = None
        self.folder_key: int | None = None
        self.other_keys: set[int] = set()
        self.keys: set[int] = set()

    def look(self) -> Iterator[Iterable[str]]:
        """Returns the lines that are there now, in blocks; then :attr:`is_over` may be True."""
        self.looks += 1
        self.stirred = False
        file, window = self._file, self._window
        while True:
            # asked before reading: what was written before the end is then read for certain
            finished = self.is_finished() or (window is not None and window.is_over())
            self.has_ended = finished
            if finished:
                file.refresh()
            begin = window.begin() if window and not file.position else 0
            # likewise: what is there now is older than an end that nobody has seen yet
            size = file.size() if window else None
            limit = window.end() if window else None
            if begin is not None and file.open(begin):
                for block in file.lines(size if limit is None else limit):
                    self.pause = SHORTEST_POLL
                    yield block
                if file.was_replaced():
                    yield from file.lines(limit)
                    yield from file.rest()
                    file.close()
                    self.pause = SHORTEST_POLL
                    continue
            if finished or (limit is not None and file.position >= limit):
                yield from file.rest()
                self.is_over = True
            return

    def is_finished(self) -> bool:
        """Asks whether the end has come, unless there is no reason to ask again yet."""
        now = time.monotonic()
        if not self.has_ended and (self.ask or now - self._asked >= self.tail.check_every):
            self.has_ended = self.tail.is_finished()
            self.ask = False
            self._asked = now
        return self.has_ended

    def patience(self) -> float:
        """Returns in how many seconds it is asked again whether the end has come."""
        return self.tail.check_every - (time.monotonic() - self._asked)

    @property
    def is_open(self) -> bool:
        """Whether the log is there, as far as is known."""
        return self._file.is_open

    def explained(self, error: Exception) -> Exception:
        """Returns what is to be told of an error."""
        if isinstance(error, FileNotFoundError):
            return no_log(self.path)
        return cannot_read(self.path, error) if isinstance(error, OSError) else error

    def close(self) -> None:
        """Closes the log."""
        self._file.close()
