"""Following logs that are files: one of them, or many in one thread.

While nothing is written, following costs nothing where the system tells of changes
(:mod:`torchx_kit.logs.file_events`), little elsewhere: it is looked ever less often.
"""

from __future__ import annotations

import heapq
import io
import math
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from torchx_kit.logs.file_logs import cannot_read, no_log
from torchx_specs.schedulers.api import split_lines

if TYPE_CHECKING:
    from torchx_kit.logs.file_events import Watcher
    from torchx_kit.logs.file_logs import Tail, Window

_Key = TypeVar("_Key")

BLOCK_BYTES = 1 << 16
# A writer in full swing makes an event per write; reading that often costs more than it writes.
_BUSY_SECONDS = 0.002
_LONGEST_BUSY_SECONDS = 0.03
_FIRST_LOOKS = 5
_FIRST_SECONDS = 0.002
_SHORTEST_POLL = 0.02
# That many logs are followed as quickly as one; more take turns.
_FEW = 16


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
            for _ in range(min(_FEW, most - len(keys)) if more else 0):
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
        self.pause = _SHORTEST_POLL
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
                    self.pause = _SHORTEST_POLL
                    yield block
                if file.was_replaced():
                    yield from file.lines(limit)
                    yield from file.rest()
                    file.close()
                    self.pause = _SHORTEST_POLL
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


class LogFile:
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


class Waiting:
    """Waits until there may be more to read in one of some logs, or the end of one to see."""

    def __init__(self) -> None:
        self._watcher: Watcher | None = None
        self._watched: dict[int, set[Followed]] = {}
        self._due: list[tuple[float, int, Followed]] = []
        self._numbers = count()
        self._size = 0

    def rest(self, followed: Followed) -> None:
        """Waits for a log that was read.

        Raises:
            OSError: events are wanted, and this system has none
        """
        if followed.looks < _FIRST_LOOKS:
            # much that is followed is over in a moment: not worth setting up events for
            seconds = _FIRST_SECONDS * followed.looks * (1 + self._size / _FEW)
        elif followed.looks == _FIRST_LOOKS:
            self._begin(followed)
            seconds = 0.0
        elif followed.has_events and self._watcher is not None:
            seconds = self._arm(followed, self._watcher)
        else:
            seconds = min(followed.pause, followed.tail.longest_poll)
            followed.pause *= 1.5
        # what has happened while it was read is not told again
        is_stirred = followed.stirred or followed.ask
        followed.due = time.monotonic() + (0.0 if is_stirred else seconds)
        self._size += 1
        heapq.heappush(self._due, (followed.due, next(self._numbers), followed))

    def wait(self, at_once: bool) -> list[Followed]:
        """Returns those logs that are to be looked at, as soon as there are any.

        Args:
            at_once: do not wait for them
        """
        seconds = 0.0 if at_once else max(0.0, self._next_due() - time.monotonic())
        found: list[Followed] = []
        if self._watcher is not None:
            begun = time.monotonic()
            happened = self._watcher.wait(seconds)
            found = self._told_of(happened)
            is_busy = happened and not at_once and time.monotonic() - begun < _BUSY_SECONDS
            if is_busy and not any(followed.ask or followed.has_ended for followed in found):
                busy = _BUSY_SECONDS * (1 + self._size / _FEW)
                time.sleep(min(busy, _LONGEST_BUSY_SECONDS))
        elif seconds:
            time.sleep(seconds)
        now = time.monotonic()
        stamps: dict[str, tuple[int, int]] = {}
        while self._next_due() <= now:
            followed = heapq.heappop(self._due)[2]
            self._take(followed)
            found.append(followed)
            if not followed.has_events:
                self._compare_stamps(followed, stamps)
        return found

    def forget(self, followed: Followed) -> None:
        """Stops watching a log."""
        for key in list(followed.keys):
            self._forget_key(followed, key)

    def close(self) -> None:
        """Stops watching."""
        if self._watcher is not None:
            self._watcher.close()

    def _next_due(self) -> float:
        # of one that was looked at earlier than it was due, a place is left behind
        while self._due and self._due[0][2].due != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def _take(self, followed: Followed) -> None:
        followed.due = None
        self._size -= 1

    def _told_of(self, happened: dict[int, int]) -> list[Followed]:
        """Returns the logs of which something has happened that makes them worth a look."""
        from torchx_kit.logs.file_events import GONE

        found: dict[Followed, None] = {}
        may_have_ended: dict[Followed, None] = {}
        for key, mask in happened.items():
            for followed in list(self._watched.get(key, ())):
                if key in followed.other_keys:
                    followed.ask = True
                    may_have_ended[followed] = None
                is_folder = key == followed.folder_key
                is_only_other = key in followed.other_keys and key != followed.log_key
                if (is_folder or mask & GONE) and followed.log_key is not None:
                    # another file may have taken its place
                    self._forget_key(followed, followed.log_key)
                    followed.log_key = None
                if is_folder and mask & GONE:
                    followed.folder_key = None
                if not is_only_other or mask & GONE:
                    found[followed] = None
        for followed in may_have_ended:
            # of many logs that one file tells the end of, most have not come to theirs
            if followed.due is not None and followed not in found and _is_worth_a_look(followed):
                found[followed] = None
        resting = []
        for followed in found:
            if followed.due is None:
                followed.stirred = True  # it is being read, and may be past that
            else:
                self._take(followed)
                resting.append(followed)
        return resting

    def _begin(self, followed: Followed) -> None:
        followed.has_events = self._can_watch(followed)
        followed.ask = True  # it may have ended before it was watched
        if not followed.has_events:
            self._compare_stamps(followed, {})
            return
        from torchx_kit.logs.file_events import GONE, MODIFIED

        for path in followed.tail.watch:
            try:
                followed.other_keys.add(self._watch(followed, path, MODIFIED | GONE))
            except OSError:
                pass  # then the end is seen a little later, by check_every

    def _can_watch(self, followed: Followed) -> bool:
        if followed.tail.method == "poll":
            return False
        from torchx_kit.logs import file_events

        try:
            if followed.tail.method == "auto" and file_events.is_on_network(followed.path):
                return False
            if self._watcher is None:
                self._watcher = file_events.Watcher()
        except OSError:
            if followed.tail.method == "events":
                raise
            return False
        return True

    def _arm(self, followed: Followed, watcher: Watcher) -> float:
        """Watches a log and its folder; returns in how many seconds to look though nothing happens.

        Two steps, as what happens before something is watched is not told.
        """
        from torchx_kit.logs.file_events import APPEARED, GONE, MODIFIED, nearest_folder

        patience = followed.patience()
        try:
            if followed.folder_key is None:
                folder = nearest_folder(followed.path)
                key = self._watch(followed, folder, APPEARED | GONE)
                if followed.is_open or folder == os.path.dirname(os.path.abspath(followed.path)):
                    followed.folder_key = key
                    if not followed.is_open and os.path.exists(followed.path):
                        return 0.0  # it appeared before it was watched
                else:  # look again which folder is the nearest
                    patience = min(patience, followed.tail.longest_poll)
            if followed.is_open and followed.log_key is None:
                followed.log_key = self._watch(followed, followed.path, MODIFIED | GONE)
                if followed.path in followed.tail.watch:
                    # forgotten with the log's; and the end may have come meanwhile
                    followed.other_keys.add(followed.log_key)
                    followed.ask = True
                return 0.0  # what was written before it was watched is to be read first
        except FileNotFoundError:
            followed.folder_key = followed.log_key = None
            patience = min(patience, _SHORTEST_POLL)
        except OSError:  # no watch is left
            self.forget(followed)
            followed.has_events = False
            patience = _SHORTEST_POLL
        return patience

    def _watch(self, followed: Followed, path: str, events: int) -> int:
        if self._watcher is None:
            raise AssertionError("unreachable: there are events")
        key = self._watcher.watch(path, events)
        self._watched.setdefault(key, set()).add(followed)
        followed.keys.add(key)
        return key

    def _forget_key(self, followed: Followed, key: int) -> None:
        them = self._watched.get(key, set())
        them.discard(followed)
        followed.keys.discard(key)
        if not them and self._watched.pop(key, None) is not None and self._watcher is not None:
            self._watcher.forget(key)

    def _compare_stamps(self, followed: Followed, known: dict[str, tuple[int, int]]) -> None:
        """Looks whether the files that may tell of an end have changed.

        Args:
            followed: the log
            known: what was seen of files just now; added to
        """
        stamps = []
        for path in followed.tail.watch:
            if path not in known:
                try:
                    found = os.stat(path)
                    known[path] = (found.st_size, found.st_mtime_ns)
                except OSError:
                    known[path] = (-1, 0)
            stamps.append(known[path])
        followed.ask |= stamps != followed.stamps
        followed.stamps = stamps


def _is_worth_a_look(followed: Followed) -> bool:
    """Asks whether the end of a log has come; an error is told by whoever looks at the log."""
    try:
        return followed.is_finished()
    except Exception:
        return True
