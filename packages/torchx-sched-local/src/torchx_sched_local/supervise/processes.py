"""Identifying, finding and signalling processes.

The operating system reuses process ids. So a process is identified here by its pid and its start
time. On systems with pidfds, a signal is sent through a pidfd, so that it never reaches another
process.

The processes of a replica are found in five ways, because a process can escape each single way:
by descent (an orphan gets another parent), by the session and by the process group that the
replica's first process leads (a daemon makes its own), by a variable in the environment that every
descendant inherits unless it clears its environment (a daemon usually does not), and on Linux by
the log file that is its standard output or error (a daemon may open another one).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Set
from typing import NamedTuple

from torchx_sched_local.supervise import process_table
from torchx_sched_local.supervise.process_table import ProcessInfo

_HAS_PIDFD = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")
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


class Marks(NamedTuple):
    """What marks the processes of some replicas, beside descent from the first processes.

    Attributes:
        owns_token: Returns True for the tokens of the replicas.
        owns_output: Returns True for the paths of the replicas' log files.
    """

    owns_token: Callable[[str], bool]
    owns_output: Callable[[str], bool]

    def match(self, pid: int) -> bool:
        """Return True if the process has one of the marks."""
        return any(map(self.owns_token, process_table.read_tokens(pid))) or any(
            map(self.owns_output, process_table.output_files(pid))
        )


class Leader(NamedTuple):
    """The first process of a replica, which leads a session and a process group.

    Attributes:
        process: The process.
        token: Marks the replica's processes, in
            :data:`~torchx_sched_local.supervise.process_table.ENV_REPLICA`.
        reaped: A time, as :func:`process_table.now`, until which the pid was certainly not reused;
            None before the process was reaped.
    """

    process: ProcessId
    token: str
    reaped: int | None = None


#: Pids of processes that must not be terminated.
Spared = Set[int]


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

    If too many files are open to find out, every process with this pid counts.
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


def send_signal(process: ProcessId, number: int) -> bool:
    """Send a signal to a process, and return False if it has ended."""
    if process.pid <= 1 or process.start <= 0:
        return False  # a process group, every process, or an unknown one
    if not _HAS_PIDFD:
        return _kill(process, number)
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # an old kernel, or no file descriptor is left
        return _kill(process, number)
    try:
        # The descriptor keeps the pid from being reused, so the check comes after it was opened.
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    finally:
        os.close(fd)


def find_processes(
    leaders: Iterable[Leader],
    marks: Marks,
    since: int,
    spared: Spared | None = None,
) -> set[ProcessId]:
    """Return every living process that belongs to the leaders, the leaders included.

    Args:
        leaders: The first processes of replicas. A leader with an unknown start is ignored.
        marks: What marks the processes that belong to the leaders.
        since: Processes that started before this time, as :func:`process_table.now`, never belong.
        spared: If not None, all children of this process except these, and their descendants,
            belong too.

    Raises:
        OSError: Too many files are open to find out.
    """
    table = process_table.all_processes()
    found = _by_descent(table, _identified(leaders))
    if spared is not None:
        children = {pid for pid, info in table.items() if info.parent == os.getpid()}
        found |= _descendants(table, children - spared)
    # Reading the marks takes long, so processes that the result cannot contain are skipped.
    others = {
        pid
        for pid in table.keys() - found
        if table[pid].start >= since and table[pid].state not in _ENDED
    }
    found |= set(filter(marks.match, others))
    # Children of the marked processes may have cleared their environment.
    found |= _descendants(table, found)
    found -= {0, 1, os.getpid()}
    return {
        ProcessId(pid, table[pid].start)
        for pid in found
        if table[pid].start >= since and table[pid].state not in _ENDED
    }


def may_have_left_processes(
    leaders: Iterable[Leader], marks: Marks, spared: Spared | None = None
) -> bool:
    """Return False if :func:`find_processes` would find nothing; cheaper than calling it.

    Call this only after all leaders have ended. The arguments are those of :func:`find_processes`.
    """
    if spared is not None and process_table.children() - spared:
        return True
    for leader in _identified(leaders):
        try:
            os.killpg(leader.process.pid, 0)
            return True
        except PermissionError:
            return True
        except ProcessLookupError:
            pass
    return any(map(marks.match, process_table.pids_of_user()))


def _identified(leaders: Iterable[Leader]) -> list[Leader]:
    # A pid of 0 is not a leader: 0 is the session and group of the kernel, and of processes that
    # entered a container from outside.
    return [leader for leader in leaders if leader.process.pid > 1 and leader.process.start > 0]


def _kill(process: ProcessId, number: int) -> bool:
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _by_descent(table: dict[int, ProcessInfo], leaders: list[Leader]) -> set[int]:
    """Return the descendants of the leaders, and the members of their sessions and groups."""
    living = {
        leader.process.pid
        for leader in leaders
        if (info := table.get(leader.process.pid)) is not None
        and leader.process.start == info.start
    }
    found = _descendants(table, living)
    by_pid = {leader.process.pid: leader for leader in leaders}
    members: dict[int, list[int]] = {}
    for pid, info in table.items():
        for group in {info.session, info.group}:
            if group in by_pid:
                members.setdefault(group, []).append(pid)
    for group, pids in members.items():
        # The id of a session or group is not reused while it has a member. So if one member
        # started before the leader was reaped, all members belong to the leader.
        reaped = by_pid[group].reaped
        is_ours = reaped is not None and any(table[pid].start < reaped for pid in pids)
        if group in living or is_ours:
            found.update(pids)
    return found | _descendants(table, found)


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
