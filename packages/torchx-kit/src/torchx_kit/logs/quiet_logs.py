"""Wait until any of many followed logs has new lines or has ended."""

from __future__ import annotations

import heapq
import math
import os
import threading
import time
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from torchx_kit.logs.file_events import (
    APPEARED,
    MODIFIED,
    REMOVED,
    Watcher,
    is_on_network,
    nearest_folder,
)

if TYPE_CHECKING:
    from torchx_kit.logs.following import Followed
    from torchx_specs.schedulers.closing import Closing

#: Up to this number of logs, the pauses are as short as for one log; with more logs they grow.
FEW_LOGS = 16
#: The first pause between two polls of a quiet log, in seconds.
SHORTEST_POLL_SECONDS = 0.02
# A busy writer causes an event for each write. Reading at each event would cost more than writing.
_BUSY_SECONDS = 0.002
_LONGEST_BUSY_SECONDS = 0.03
# Many logs end quickly, so file events are set up only after this number of reads.
_READS_WITHOUT_EVENTS = 5
_FIRST_PAUSE_SECONDS = 0.002


class QuietLogs:
    """The followed logs that have no new lines at the moment."""

    def __init__(self) -> None:
        self._signal = threading.Event()
        self._closing: Closing | None = None
        self._closing_calls = ExitStack()
        self._watcher: Watcher | None = None
        self._watched: dict[int, set[Followed]] = {}
        self._due: list[tuple[float, int, Followed]] = []
        self._numbers = count()
        self._size = 0

    def end_with(self, closing: Closing | None) -> None:
        """Let :meth:`wait` return when the scheduler of all logs is closed."""
        if self._closing is None and closing is not None:
            self._closing = closing
            self._closing_calls.enter_context(closing.calling(lambda: self._signal.set()))

    def is_closed(self) -> bool:
        """Return True once the scheduler was closed."""
        return self._closing is not None and self._closing.is_set()

    def add(self, followed: Followed) -> None:
        """Add a log whose lines were all read.

        Raises:
            OSError: The log's ``tail.method`` is ``events``, and this system has no file events.
        """
        if followed.reads < _READS_WITHOUT_EVENTS:
            seconds = _FIRST_PAUSE_SECONDS * followed.reads * (1 + self._size / FEW_LOGS)
        elif followed.reads == _READS_WITHOUT_EVENTS:
            self._set_up_events(followed)
            seconds = 0.0
        elif followed.has_events and self._watcher is not None:
            seconds = self._watch_log(followed)
        else:
            seconds = min(followed.pause, followed.tail.longest_poll)
            followed.pause *= 1.5
        if followed.piece_due is not None:
            seconds = min(seconds, max(0.0, followed.piece_due - time.monotonic()))
        # An event that came during the last read is not reported again, so read once more at once.
        is_due_now = followed.has_changed or followed.must_check_end
        followed.due = time.monotonic() + (0.0 if is_due_now else seconds)
        self._size += 1
        heapq.heappush(self._due, (followed.due, next(self._numbers), followed))

    def wait(self, at_once: bool) -> list[Followed]:
        """Wait until logs may have new lines or may have ended, and remove and return them.

        Args:
            at_once: If True, return immediately, possibly with no logs.
        """
        seconds = 0.0 if at_once else max(0.0, self._next_due() - time.monotonic())
        found: list[Followed] = []
        if self._watcher is not None:
            begun = time.monotonic()
            events = self._watcher.wait(seconds)
            found = self._logs_to_read(events)
            is_busy = events and not at_once and time.monotonic() - begun < _BUSY_SECONDS
            if is_busy and not any(log.must_check_end or log.has_ended for log in found):
                busy_seconds = _BUSY_SECONDS * (1 + self._size / FEW_LOGS)
                time.sleep(min(busy_seconds, _LONGEST_BUSY_SECONDS))
        elif seconds:
            self._signal.wait(seconds)
        now = time.monotonic()
        known_stats: dict[str, tuple[int, int]] = {}
        while self._next_due() <= now:
            followed = heapq.heappop(self._due)[2]
            self._remove(followed)
            found.append(followed)
            if not followed.has_events:
                self._compare_stats(followed, known_stats)
        return found

    def unwatch(self, followed: Followed) -> None:
        """End all watches of a log."""
        for key in list(followed.keys):
            self._end_watch(followed, key)

    def close(self) -> None:
        """End all watches."""
        self._closing_calls.close()
        if self._watcher is not None:
            self._watcher.close()

    def _next_due(self) -> float:
        # A log that was removed before it was due leaves an outdated entry in the heap.
        while self._due and self._due[0][2].due != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else math.inf

    def _remove(self, followed: Followed) -> None:
        followed.due = None
        self._size -= 1

    def _logs_to_read(self, events: dict[int, int]) -> list[Followed]:
        """Remove and return the logs to read after these events."""
        found: dict[Followed, None] = {}
        may_have_ended: dict[Followed, None] = {}
        for key, mask in events.items():
            for followed in list(self._watched.get(key, ())):
                if key in followed.other_keys:
                    followed.must_check_end = True
                    may_have_ended[followed] = None
                is_folder = key == followed.folder_key
                is_only_other = key in followed.other_keys and key != followed.log_key
                if (is_folder or mask & REMOVED) and followed.log_key is not None:
                    # Another file may have taken the log's path.
                    self._end_watch(followed, followed.log_key)
                    followed.log_key = None
                if is_folder and mask & REMOVED:
                    followed.folder_key = None
                if not is_only_other or mask & REMOVED:
                    found[followed] = None
        for followed in may_have_ended:
            # One watched file may report the ends of many logs, so check which logs have ended.
            if followed.due is not None and followed not in found and _ended_or_failed(followed):
                found[followed] = None
        waiting = []
        for followed in found:
            if followed.due is None:
                followed.has_changed = True  # the current read may already be past the change
            else:
                self._remove(followed)
                waiting.append(followed)
        return waiting

    def _set_up_events(self, followed: Followed) -> None:
        followed.has_events = self._can_watch(followed)
        followed.must_check_end = True  # the log may have ended before it was watched
        if not followed.has_events:
            self._compare_stats(followed, {})
            return
        for path in followed.tail.watch:
            try:
                followed.other_keys.add(self._watch(followed, path, MODIFIED | REMOVED))
            except OSError:
                pass  # the end is then noticed after at most tail.check_every seconds

    def _can_watch(self, followed: Followed) -> bool:
        if followed.tail.method == "poll":
            return False
        try:
            if followed.tail.method == "auto" and is_on_network(followed.path):
                return False
            if self._watcher is None:
                self._watcher = Watcher()
                self._signal = self._watcher.signal
        except OSError:
            if followed.tail.method == "events":
                raise
            return False
        return True

    def _watch_log(self, followed: Followed) -> float:
        """Watch a log and its folder, and return how long to wait for an event, in seconds.

        A watch does not report earlier changes. So after a new watch the return value is 0, and the
        log is read once more.
        """
        seconds = followed.seconds_until_check()
        try:
            if followed.folder_key is None:
                folder = nearest_folder(followed.path)
                key = self._watch(followed, folder, APPEARED | REMOVED)
                if followed.is_open or folder == os.path.dirname(os.path.abspath(followed.path)):
                    followed.folder_key = key
                    if not followed.is_open and os.path.exists(followed.path):
                        return 0.0  # the log was created before its folder was watched
                else:  # poll as well: a nearer folder may have been created before the watch began
                    seconds = min(seconds, followed.tail.longest_poll)
            if followed.is_open and followed.log_key is None:
                followed.log_key = self._watch(followed, followed.path, MODIFIED | REMOVED)
                if followed.path in followed.tail.watch:
                    # The watch on this path in other_keys ended together with the log's last watch,
                    # so it may have missed the end of the log.
                    followed.other_keys.add(followed.log_key)
                    followed.must_check_end = True
                return 0.0
            if self._watch_sources(followed):
                return 0.0
        except FileNotFoundError:
            followed.folder_key = followed.log_key = None
            seconds = min(seconds, SHORTEST_POLL_SECONDS)
        except OSError:  # the user has too many watches
            self.unwatch(followed)
            followed.has_events = False
            seconds = SHORTEST_POLL_SECONDS
        return seconds

    def _watch_sources(self, followed: Followed) -> bool:
        """Watch the files in ``tail.sources`` that exist, and return True if there is a new one."""
        before = len(followed.unwatched)
        for path in list(followed.unwatched):
            try:
                self._watch(followed, path, MODIFIED)
            except FileNotFoundError:
                continue  # not created yet
            followed.unwatched.discard(path)
        return len(followed.unwatched) < before

    def _watch(self, followed: Followed, path: str, events: int) -> int:
        if self._watcher is None:
            raise AssertionError("unreachable: a log with events has a watcher")
        key = self._watcher.watch(path, events)
        self._watched.setdefault(key, set()).add(followed)
        followed.keys.add(key)
        return key

    def _end_watch(self, followed: Followed, key: int) -> None:
        logs = self._watched.get(key, set())
        logs.discard(followed)
        followed.keys.discard(key)
        if not logs and self._watched.pop(key, None) is not None and self._watcher is not None:
            self._watcher.unwatch(key)

    def _compare_stats(self, followed: Followed, known: dict[str, tuple[int, int]]) -> None:
        """Set ``must_check_end`` if size or modification time of a file in ``tail.watch`` changed.

        Args:
            followed: The log.
            known: Maps the path of each file that this poll has queried to its size and
                modification time. The method adds files to it.
        """
        stats = []
        for path in followed.tail.watch:
            if path not in known:
                try:
                    stat = os.stat(path)
                    known[path] = (stat.st_size, stat.st_mtime_ns)
                except OSError:
                    known[path] = (-1, 0)
            stats.append(known[path])
        followed.must_check_end |= stats != followed.stats
        followed.stats = stats


def _ended_or_failed(followed: Followed) -> bool:
    """Return True if the log has ended, or if the check fails; the next read reports the error."""
    try:
        return followed.check_end()
    except Exception:
        return True
