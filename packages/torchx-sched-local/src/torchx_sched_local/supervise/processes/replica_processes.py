"""Identifying, finding, signalling and terminating processes.

The operating system reuses process ids. So a process is identified here by its pid and its start
time. On systems with pidfds, a signal is sent through a pidfd, so that it never reaches another
process.

No single way finds all processes of a replica, so they are found in four ways. The second sentence
of each item says which processes this way does not find:

- They descend from the replica's first process. An orphan gets another parent.
- They are in the session that the first process leads. A daemon makes its own session.
- They inherit an environment variable. A process can clear its environment; daemons seldom do.
- On Linux, their standard output or error is a log file of the replica. A daemon may open another
  file.

In a process that adopts orphans and supervises one app only, all other children belong to the app.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.process_table import NO_DESCRIPTOR, ProcessInfo

#: How long a process may take to end after SIGTERM, in seconds.
GRACE_SECONDS = 10.0

# How often to look whether a process has ended after a signal, and how long to wait before looking
# for other processes after SIGKILL, or while too many files are open.
_LOOK_SECONDS = 0.01
_AGAIN_SECONDS = 0.1
_ENDED = ("Z", "X")


class ProcessId(NamedTuple):
    """Identifies a process, also after its pid was reused.

    Attributes:
        pid: The process id.
        start: When the process started, as :attr:`ProcessInfo.start`; 0 if unknown, which matches
            no process.
    """

    pid: int
    start: int


class Leader(NamedTuple):
    """The first process of a replica, which leads a session.

    Attributes:
        process: The process.
        reaped: A time, as :func:`process_table.now`, until which the pid was certainly not reused;
            None before the process was reaped.
    """

    process: ProcessId
    reaped: int | None = None


def identify(pid: int) -> ProcessId:
    """Return the identity of a process; its start time is 0 if there is no such process."""
    info = process_table.process_info(pid)
    return ProcessId(pid, info.start if info else 0)


def identify_child(pid: object) -> ProcessId:
    """Return the identity of a child of this process.

    For any other pid, the start time is 0, so that the pid is never signalled: a subclass of the
    scheduler may report a value that is not the pid of a process on this machine.
    """
    if type(pid) is not int:
        return ProcessId(0, 0)
    try:
        info = process_table.process_info(pid)
    except OSError:
        return ProcessId(0, 0)  # too many open files; the caller still has the process's object
    is_child = info is not None and info.parent == os.getpid()
    return ProcessId(pid, info.start if info is not None and is_child else 0)


def is_alive(process: ProcessId) -> bool:
    """Return True if the process has not ended and its pid was not reused.

    Return False if the start time of ``process`` is unknown. If too many files are open to read the
    process, return True for any process with this pid.
    """
    try:
        info = process_table.process_info(process.pid)
    except OSError:
        return process.start != 0 and _exists(process.pid)
    if info is None or info.state in _ENDED:
        return False
    return process.start != 0 and process.start == info.start


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def open_pidfd(pid: int) -> int | None:
    """Return a pidfd of a process, or None if this system has none or if too many files are open.

    At most half of the descriptors that this process may open are pidfds: other code in this
    process, and the start of a replica, need descriptors, too.

    Raises:
        ProcessLookupError: There is no such process.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return None
    # The operating system returns the lowest free number.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and fd >= limit // 2:
        os.close(fd)
        return None
    return fd


def send_signal(process: ProcessId, number: int) -> bool:
    """Send a signal to a process.

    Returns:
        False if the process has ended, or if its start time is unknown; True even if this user has
        no permission to send the signal.
    """
    if process.pid <= 1 or process.start <= 0:
        return False  # these pids mean a process group or all processes; or the start is unknown
    fd = None
    try:
        fd = open_pidfd(process.pid)
        # Check only now: an open descriptor always means the same process, a pid does not.
        if not is_alive(process):
            return False
        if fd is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    finally:
        if fd is not None:
            os.close(fd)
    return True


def find_processes(
    leaders: Iterable[Leader],
    is_marked: Callable[[int], bool],
    since: int,
    adopts: bool = False,
) -> set[ProcessId]:
    """Return every living process that belongs to the leaders, the leaders included.

    Args:
        leaders: The first processes of replicas. A leader with an unknown start is ignored.
        is_marked: Returns True if the process with a pid has a mark of the replicas.
        since: Processes that started before this time, as :func:`process_table.now`, never belong.
        adopts: Whether all children of this process and their descendants belong to the leaders.

    Raises:
        OSError: Too many files are open, so processes cannot be read.
    """
    table = process_table.all_processes()
    roots = _members(table, leaders)
    if adopts:
        roots.add(os.getpid())
    found = _descendants(table, roots)
    # Reading the marks takes long, so processes that the result cannot contain are skipped.
    others = {
        pid
        for pid in table.keys() - found
        if table[pid].start >= since and table[pid].state not in _ENDED
    }
    found |= set(filter(is_marked, others))
    # Children of the marked processes may have cleared their environment.
    found |= _descendants(table, found)
    found -= {0, 1, os.getpid()}
    return {
        ProcessId(pid, table[pid].start)
        for pid in found
        if table[pid].start >= since and table[pid].state not in _ENDED
    }


def _members(table: dict[int, ProcessInfo], leaders: Iterable[Leader]) -> set[int]:
    """Return the living leaders, and the members of the sessions that the leaders lead."""
    sessions: dict[int, list[int]] = {}
    for pid, info in table.items():
        sessions.setdefault(info.session, []).append(pid)
    found: set[int] = set()
    for (leader, start), reaped in leaders:
        # Session 0 belongs to the kernel, and to processes that entered a container from outside.
        if leader <= 1 or start <= 0:
            continue
        members = sessions.get(leader, [])
        is_alive = leader in table and table[leader].start == start
        # The id of a session is not reused while it has a member. So if one member started before
        # the leader was reaped, all members belong to the leader.
        if is_alive or (reaped is not None and any(table[pid].start < reaped for pid in members)):
            found.update(members)
        if is_alive:
            found.add(leader)
    return found


def _descendants(table: dict[int, ProcessInfo], roots: Collection[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, info in table.items():
        children.setdefault(info.parent, []).append(pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, ())
    return found


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
                deadline = time.monotonic() + _AGAIN_SECONDS
            elif not members:
                members = find()
                # Send SIGCONT too, because a stopped process does not handle SIGTERM.
                _signal(members, signal.SIGTERM, signal.SIGCONT)
            if not members:
                return
        except OSError as e:
            if e.errno not in NO_DESCRIPTOR:
                raise
            time.sleep(_AGAIN_SECONDS)  # another thread may close a file meanwhile
        for process in members:
            while is_alive(process) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        members = set(filter(is_alive, members))


def _signal(processes: set[ProcessId], *numbers: int) -> None:
    for process in processes:
        for number in numbers:
            send_signal(process, number)
