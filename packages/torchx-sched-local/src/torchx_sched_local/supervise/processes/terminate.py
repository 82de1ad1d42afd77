"""Terminates processes: SIGTERM first, SIGKILL after a grace period."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

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


def terminate_all(find: Callable[[], set[ProcessId]], grace: float | None = None) -> None:
    """Terminate processes, and wait until they have ended, even while too many files are open.

    Args:
        find: Returns the living processes that have to end. It is called again after these have
            ended, because they may have started others.
        grace: Seconds between SIGTERM and SIGKILL; None means :data:`GRACE_SECONDS`.
    """
    deadline = kill_at = time.monotonic() + (GRACE_SECONDS if grace is None else grace)
    members: set[ProcessId] = set()
    while True:
        try:
            if time.monotonic() >= kill_at:
                members |= find()
                _signal(members, signal.SIGKILL)
                deadline = time.monotonic() + _POLL_SECONDS
            elif not members:
                members = find()
                # Send SIGCONT too, because a stopped process does not handle SIGTERM.
                _signal(members, signal.SIGTERM, signal.SIGCONT)
            if not members:
                return
        except OSError as e:
            if e.errno not in NO_DESCRIPTOR:
                raise
            time.sleep(_POLL_SECONDS)  # another thread may close a file meanwhile
        for process in members:
            _wait_for_end(process, deadline)
        members = set(filter(is_alive, members))


def _wait_for_end(process: ProcessId, deadline: float) -> None:
    """Wait until a process has ended, or until a time as :func:`time.monotonic`."""
    try:
        fd = open_pidfd(process.pid)
    except ProcessLookupError:
        return
    if fd is None:
        while is_alive(process) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return
    try:
        if is_alive(process):  # else the pid was reused before the descriptor was opened
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    finally:
        os.close(fd)


def _signal(processes: set[ProcessId], *numbers: int) -> None:
    for process in processes:
        for number in numbers:
            send_signal(process, number)
