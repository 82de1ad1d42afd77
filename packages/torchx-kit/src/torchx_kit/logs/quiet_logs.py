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

if TYPE_CHECKING:
    from torchx_kit.logs.following import Followed
    from torchx_specs.schedulers.closing import Closing

#: Up to this number of logs, the pauses are as short as for one log; with more logs they grow, and
#: many logs are looked at together.
FEW_LOGS = 16
#: The first pause of a log that has just started, and of one that had new lines, in seconds.
FIRST_PAUSE_SECONDS, SHORTEST_PAUSE_SECONDS = 0.002, 0.02
_LONGEST_PAUSE_SECONDS = 0.1
# With more logs than this, the pause of a log that stays quiet grows further, up to a second.
_MANY_LOGS = 100
_MOST_SECONDS = 1.0

# Size, modification time and number of a file; None for a missing file.
_Stat = tuple[int, int, int] | None


class QuietLogs:
    """The followed logs that have no new lines at the moment.

    Each of them is looked at again and again: a look queries the sizes of its files. The operating
    system's file events would report changes earlier, but not those of other machines.
    """

    def __init__(self) -> None:
        self._signal = threading.Event()
        self._closing: Closing | None = None
        self._closing_calls = ExitStack()
        self._due: list[tuple[float, int, Followed]] = []
        self._numbers = count()

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
        count = len(self._due)
        longest = min(_LONGEST_PAUSE_SECONDS * max(1.0, count / _MANY_LOGS), _MOST_SECONDS)
        shortest = min(SHORTEST_PAUSE_SECONDS * count / FEW_LOGS, _LONGEST_PAUSE_SECONDS)
        followed.due = time.monotonic() + max(shortest, min(followed.pause, longest))
        followed.pause *= 1.5
        if count > FEW_LOGS:
            followed.due = math.ceil(followed.due / shortest) * shortest
        if followed.piece_due is not None:
            followed.due = min(followed.due, followed.piece_due)
        heapq.heappush(self._due, (followed.due, next(self._numbers), followed))

    def wait(self, at_once: bool) -> list[Followed]:
        """Wait for the next looks, and remove and return the logs that must be read.

        Args:
            at_once: If True, return immediately, possibly with no logs.
        """
        if not at_once and self._due:
            self._signal.wait(max(0.0, self._due[0][0] - time.monotonic()))
        now = time.monotonic()
        found: list[Followed] = []
        unchanged: list[Followed] = []
        known: dict[str, _Stat] = {}
        while self._due and self._due[0][0] <= now:
            followed = heapq.heappop(self._due)[2]
            (found if _must_read(followed, now, known) else unchanged).append(followed)
        for followed in unchanged:
            self.add(followed)
        for followed in found:
            followed.due = None
        return found

    def close(self) -> None:
        """Free the resources."""
        self._closing_calls.close()


def _must_read(followed: Followed, now: float, known: dict[str, _Stat]) -> bool:
    """Return whether a log may have new lines, or may have ended.

    Args:
        followed: The log.
        now: The time (:func:`time.monotonic`).
        known: What the present looks have found, by path; is added to.
    """
    tail = followed.tail
    watched = [_stat(path, known) for path in tail.watch]
    own = [_stat(path, known) for path in (followed.path, *tail.sources)]
    followed.must_check_end |= watched != followed.watched
    has_changed = own != followed.seen
    followed.watched, followed.seen = watched, own
    is_piece_due = followed.piece_due is not None and now >= followed.piece_due
    return has_changed or is_piece_due or followed.has_window or _ended_or_failed(followed)


def _stat(path: str, known: dict[str, _Stat]) -> _Stat:
    if path not in known:
        try:
            stat = os.stat(path)
            known[path] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        except OSError:
            known[path] = None
    return known[path]


def _ended_or_failed(followed: Followed) -> bool:
    """Return True if the log has ended, or if the check fails; the next read reports the error."""
    try:
        return followed.check_end()
    except Exception:
        return True
