"""Searches for processes that ended apps have left; one search serves several apps.

A search reads the environment of every process of this user. For a short app, that takes longer
than everything else in its supervision.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torchx_sched_local.supervise.processes import replica_processes
from torchx_sched_local.supervise.processes.replica_processes import Marks

if TYPE_CHECKING:
    from torchx_sched_local.supervise.reactor import Reactor

# The pause after a search is this multiple of the search's duration, and at most _LONGEST_PAUSE
# seconds.
_PAUSE_FACTOR = 2
_LONGEST_PAUSE = 0.05

#: Called with True if the app may have left processes, otherwise with False.
Found = Callable[[bool], None]


class LeftProcesses:
    """The searches of one reactor; only the reactor's thread may use this object.

    Args:
        reactor: The event loop.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting: list[tuple[Marks, Found]] = []
        self._next = 0.0

    def search(self, marks: Marks, found: Found) -> None:
        """Search for processes with the marks of an app whose replicas were reaped.

        Args:
            marks: The marks of the app's processes.
            found: Called by the event loop after the search.
        """
        self._waiting.append((marks, found))
        if len(self._waiting) == 1:
            self._reactor.call_later(max(0.0, self._next - time.monotonic()), self._run)

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        began = time.monotonic()
        try:
            matches = replica_processes.find_marked([marks for marks, _ in waiting])
        except OSError:  # too many open files; assume that processes are left
            matches = set(range(len(waiting)))
        ended = time.monotonic()
        self._next = ended + min(_PAUSE_FACTOR * (ended - began), _LONGEST_PAUSE)
        for i, (_, found) in enumerate(waiting):
            # Use separate calls, so that an error in one app does not affect the others.
            self._reactor.call_next(partial(found, i in matches))
