"""Waiting until one of many followed logs has something new."""

from __future__ import annotations

import heapq
import math
import os
import time
from itertools import count
from typing import TYPE_CHECKING

from torchx_kit.logs.file_events import (
    APPEARED,
    GONE,
    MODIFIED,
    Watcher,
    is_on_network,
    nearest_folder,
)

if TYPE_CHECKING:
    from torchx_kit.logs.following import Followed

# A writer in full swing makes an event per write; reading that often costs more than it writes.
_BUSY_SECONDS = 0.002
_LONGEST_BUSY_SECONDS = 0.03
_FIRST_LOOKS = 5
_FIRST_SECONDS = 0.002
SHORTEST_POLL = 0.02
# That many logs are followed as quickly as one; more take turns.
FEW = 16


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
            seconds = _FIRST_SECONDS * followed.looks * (1 + self._size / FEW)
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
                busy = _BUSY_SECONDS * (1 + self._size / FEW)
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
        for path in followed.tail.watch:
            try:
                followed.other_keys.add(self._watch(followed, path, MODIFIED | GONE))
            except OSError:
                pass  # then the end is seen a little later, by check_every

    def _can_watch(self, followed: Followed) -> bool:
        if followed.tail.method == "poll":
            return False
        try:
            if followed.tail.method == "auto" and is_on_network(followed.path):
                return False
            if self._watcher is None:
                self._watcher = Watcher()
        except OSError:
            if followed.tail.method == "events":
                raise
            return False
        return True

    def _arm(self, followed: Followed, watcher: Watcher) -> float:
        """Watches a log and its folder; returns in how many seconds to look though nothing happens.

        Two steps, as what happens before something is watched is not told.
        """
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
            patience = min(patience, SHORTEST_POLL)
        except OSError:  # no watch is left
            self.forget(followed)
            followed.has_events = False
            patience = SHORTEST_POLL
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
