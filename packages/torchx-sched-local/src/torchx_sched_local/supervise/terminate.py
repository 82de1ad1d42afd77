"""Ending processes: asked to (SIGTERM), given time, then killed."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable

from torchx_sched_local.supervise.processes import ProcessId, is_alive, send_signal

#: How long a process that was asked to end may take, in seconds.
GRACE = 10.0

_AGAIN_SECONDS = 0.1


class Ending:
    """The ending of a changing set of processes, one step at a time.

    Args:
        find: returns the living processes that are to end
        grace: seconds between asking and killing, :data:`GRACE` if None
    """

    def __init__(self, find: Callable[[], set[ProcessId]], grace: float | None = None) -> None:
        self._find = find
        self._kill_at = time.monotonic() + (GRACE if grace is None else grace)
        #: Those that are known to be alive still.
        self.members: set[ProcessId] = set()

    def step(self) -> float | None:
        """Does what is due; returns in how many seconds to call again, None if all have ended.

        Call earlier if one of :attr:`members` has ended.
        """
        now = time.monotonic()
        self.members = set(filter(is_alive, self.members))
        if now >= self._kill_at:
            # again and again, as they may start others meanwhile
            self.members |= self._find()
            _signal(self.members, signal.SIGKILL)
            return _AGAIN_SECONDS if self.members else None
        if not self.members:
            self.members = self._find()
            # one that is stopped would never get the first
            _signal(self.members, signal.SIGTERM, signal.SIGCONT)
        return self._kill_at - now if self.members else None


def end_all(find: Callable[[], set[ProcessId]], grace: float | None = None) -> None:
    """Ends processes, and returns when they have ended; the arguments are those of Ending."""
    ending = Ending(find, grace)
    while (seconds := ending.step()) is not None:
        wait_for_any(ending.members, seconds)


def wait_for_any(processes: Iterable[ProcessId], seconds: float) -> None:
    """Returns when one of the processes has ended, or after ``seconds``."""
    fds: list[int] = []
    poll = select.poll()
    try:
        for process in processes:
            try:
                fd = os.pidfd_open(process.pid)
            except ProcessLookupError:
                return
            except (OSError, AttributeError):
                time.sleep(min(seconds, _AGAIN_SECONDS))
                return
            fds.append(fd)
            poll.register(fd, select.POLLIN)
            if not is_alive(process):
                return
        poll.poll(seconds * 1000)
    finally:
        for fd in fds:
            os.close(fd)


def _signal(processes: Iterable[ProcessId], *numbers: int) -> None:
    for process in processes:
        for number in numbers:
            send_signal(process, number)
