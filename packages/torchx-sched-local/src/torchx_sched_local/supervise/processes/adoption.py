"""Finds the processes that an ended app has left, in a process that adopts orphans.

On Linux a process can become the parent of all orphans among its descendants (``prctl`` with
``PR_SET_CHILD_SUBREAPER``). The processes that an app has left are then children of this process,
or their descendants. So reading the list of children replaces a search through all processes.
"""

from __future__ import annotations

import os
import sys
import time
from enum import Enum

from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.replica_processes import Marks

_PR_SET_CHILD_SUBREAPER = 36
# A child that leads a session may be a replica that has just started, whose exit code is needed. If
# the child is still not in Adoption.known after this time in seconds, it is an adopted orphan.
_START_SECONDS = 10.0


def adopt_orphans() -> bool:
    """Make this process the parent of its orphaned descendants; return False if that is impossible.

    A daemon that has cleared its environment can then still be found among the descendants.
    """
    if not process_table.IS_LINUX or sys.platform != "linux":
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class Left(Enum):
    """Whether an app has left processes."""

    NO = 0
    YES = 1
    #: This process has a child without marks, which may belong to any app.
    UNKNOWN = 2


class Adoption:
    """The children of this process, which adopts orphans.

    Attributes:
        known: The pids of replicas and guards, which their owners reap.
    """

    def __init__(self) -> None:
        self.known: set[int] = set()
        self._first_seen: dict[int, float] = {}

    def find_left(self, marks: Marks) -> Left:
        """Return whether an app has left processes, and reap orphans that have ended.

        Call this only after all first processes of the app's replicas were reaped.

        Args:
            marks: The marks of the app's processes.

        Raises:
            OSError: This process has too many open files to read the list of processes.
        """
        result = Left.NO
        unknown = process_table.children() - self.known
        for pid in self._first_seen.keys() - unknown:
            del self._first_seen[pid]
        for pid in unknown:
            info = process_table.process_info(pid)
            if info is None or info.state in "ZX":
                if info is not None and self._is_orphan(pid, info.session):
                    _reap(pid)
            elif marks.match(pid):
                return Left.YES
            elif not process_table.read_tokens(pid):
                result = Left.UNKNOWN
        return result

    def _is_orphan(self, pid: int, session: int) -> bool:
        """Return True if an ended child was adopted, so that no code waits for its exit code."""
        if session == os.getsid(0):
            return False  # perhaps a program that another part of this process has started
        now = time.monotonic()
        first_seen = self._first_seen.setdefault(pid, now)
        return session != pid or now - first_seen > _START_SECONDS


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
