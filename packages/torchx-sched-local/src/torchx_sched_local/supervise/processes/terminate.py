"""Terminates processes: SIGTERM first, SIGKILL after a grace period."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable

from torchx_sched_local.supervise.processes.process_table import NO_DESCRIPTOR
from torchx_sched_local.supervise.processes.replica_processes import (
    ProcessId,
    is_alive,
    open_pidfd,
    send_signal,
)

#: How long a process may take to end after SIGTERM, in seconds.
GRACE_SECONDS = 10.0

_POLL_SECONDS = 0.1


class Termination:
    """Terminates a changing set of processes, one step at a time.

    Args:
        find: Returns the living processes that have to end.
        grace: Seconds between SIGTERM and SIGKILL; None means :data:`GRACE_SECONDS`.

    Attributes:
        members: The processes that were alive in the last step.
    """

    def __init__(self, find: Callable[[], set[ProcessId]], grace: float | None = None) -> None:
        self._find = find
        self._kill_at = time.monotonic() + (GRACE_SECONDS if grace is None else grace)
        self.members: set[ProcessId] = set()

    def step(self) -> float | None:
        """Send the signals that are due.

        Returns:
            The number of seconds after which to call this method again, or earlier if one of
            :attr:`members` has ended; None if all processes have ended.

        Raises:
            OSError: ``find`` has raised it, usually because too many files are open.
        """
        now = time.monotonic()
        self.members = set(filter(is_alive, self.members))
        if now >= self._kill_at:
            # Find the processes again in each step, because they may start others.
            self.members |= self._find()
            _signal(self.members, signal.SIGKILL)
            return _POLL_SECONDS if self.members else None
        if not self.members:
            self.members = self._find()
            # Send SIGCONT too, because a stopped process does not handle SIGTERM.
            _signal(self.members, signal.SIGTERM, signal.SIGCONT)
        return self._kill_at - now if self.members else None


def terminate_all(find: Callable[[], set[ProcessId]], grace: float | None = None) -> None:
    """Terminate processes, and wait until they have ended, even while too many files are open.

    The arguments are those of :class:`Termination`.
    """
    termination = Termination(find, grace)
    while True:
        try:
            seconds = termination.step()
        except OSError as e:
            if e.errno not in NO_DESCRIPTOR:
                raise
            time.sleep(_POLL_SECONDS)  # another thread may close a file meanwhile
            continue
        if seconds is None:
            return
        wait_for_any(termination.members, seconds)


def wait_for_any(processes: Iterable[ProcessId], seconds: float) -> None:
    """Wait until one of the processes has ended, at most ``seconds``; may return earlier."""
    fds: list[int] = []
    poll = select.poll()
    try:
        for process in processes:
            try:
                fd = open_pidfd(process.pid)
            except ProcessLookupError:
                return
            if fd is None:
                time.sleep(min(seconds, _POLL_SECONDS))
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
