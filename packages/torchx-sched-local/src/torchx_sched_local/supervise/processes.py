"""Processes: who they are, who descends from whom, and how to signal them safely.

A process id alone names nobody for long: the system uses it again. Here a process is its id and the
time it started, and a signal goes through a pidfd where there are any, so that it reaches that
process or none.

What belongs to a replica is found in four ways, because each alone can be escaped: descendants (an
orphan has another parent), the session and the process group that its first process leads (a daemon
makes its own), and a variable in the environment, which every descendant inherits unless it is
cleared (a daemon's usually is not).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Set
from typing import NamedTuple

from torchx_sched_local.supervise import process_table

_HAS_PIDFD = hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")


class ProcessId(NamedTuple):
    """A process, told apart from others that have or had its pid.

    Attributes:
        pid: the process id
        start: when it started, in the system's own unit; 0 if unknown, which no process matches
    """

    pid: int
    start: int


class Leader(NamedTuple):
    """The first process of a replica; it leads a session and a process group.

    Attributes:
        process: the process
        token: identifies the replica in :data:`ENV_REPLICA`
        reaped: time (as :func:`now`) until which its pid was certainly still its own; None while it
            was not waited for
    """

    process: ProcessId
    token: str
    reaped: int | None = None


#: Pids that are let alone.
Spared = Set[int]


def identify(pid: int) -> ProcessId:
    """Returns a process with its start time, 0 if it is gone or not to be seen."""
    seen = process_table.look(pid)
    return ProcessId(pid, seen.start if seen else 0)


def identify_child(pid: object) -> ProcessId:
    """Returns a child of this process; with start time 0 if it is something else.

    What a subclass of the scheduler says it has started may be no process of this machine, or one
    that is not to be taken for a replica: this one, say.
    """
    if type(pid) is not int:
        return ProcessId(0, 0)
    seen = process_table.look(pid)
    is_child = seen is not None and seen.parent == os.getpid()
    return ProcessId(pid, seen.start if seen is not None and is_child else 0)


def is_alive(process: ProcessId) -> bool:
    """Returns True if the process runs: not ended, and not another one of the same pid."""
    seen = process_table.look(process.pid)
    return seen is not None and _is(process, seen)


def send(process: ProcessId, number: int) -> bool:
    """Signals a process; returns False if it has ended."""
    if process.pid <= 1 or process.start <= 0:
        return False  # a group, everybody, or nobody knows whom
    if _HAS_PIDFD:
        try:
            fd = os.pidfd_open(process.pid)
        except OSError as e:
            if isinstance(e, ProcessLookupError):
                return False
            return _kill(process, number)  # a kernel without pidfds, or no descriptor is left
        try:
            # only now that the descriptor holds it can it be told from others
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
    return _kill(process, number)


def find(
    leaders: Iterable[Leader],
    tokens: Callable[[str], bool],
    since: int,
    below: Spared | None = None,
) -> set[ProcessId]:
    """Returns every living process that belongs to the leaders, themselves included.

    Args:
        leaders: the first processes; those that cannot be told from others are ignored
        tokens: says of a token in :data:`ENV_REPLICA` whether its processes belong as well
        since: what started before this time (as :func:`now`) does not belong, whatever else
            speaks for it
        below: all descendants of this process belong as well, but for these
    """
    table = process_table.snapshot()
    found = _by_descent(table, _certain(leaders))
    if below is not None:
        children = {pid for pid, seen in table.items() if seen.parent == os.getpid()}
        found |= _descendants(table, children - below)
    if process_table.HAS_PROC:
        others = table.keys() - found
        found |= {pid for pid in others if any(map(tokens, process_table.read_tokens(pid)))}
        # what these have started, whose environment may have been cleared
        found |= _descendants(table, found)
    found -= {0, 1, os.getpid()}
    return {
        ProcessId(pid, table[pid].start)
        for pid in found
        if table[pid].start >= since and table[pid].state not in ("Z", "X")
    }


def _certain(leaders: Iterable[Leader]) -> list[Leader]:
    # 0 is the session and the group of the kernel, and of whatever came into a container from
    # outside
    return [leader for leader in leaders if leader.process.pid > 1 and leader.process.start > 0]


def may_have_left(
    leaders: Iterable[Leader], tokens: Callable[[str], bool], below: Spared | None = None
) -> bool:
    """Returns False if :func:`find` would find nothing of leaders that have ended; cheaper."""
    if below is not None and process_table.children() - below:
        return True
    for leader in _certain(leaders):
        try:
            os.killpg(leader.process.pid, 0)
            return True
        except PermissionError:
            return True
        except ProcessLookupError:
            pass
    if not process_table.HAS_PROC:
        return False
    me, user = os.getpid(), os.geteuid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            # a big machine has thousands of kernel threads and other users' processes
            if os.stat(f"/proc/{name}").st_uid != user:
                continue
        except OSError:
            continue
        if any(map(tokens, process_table.read_tokens(int(name)))):
            return True
    return False


def _is(process: ProcessId, seen: process_table.Seen) -> bool:
    return process.start != 0 and process.start == seen.start and seen.state not in ("Z", "X")


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


def _by_descent(table: dict[int, process_table.Seen], leaders: list[Leader]) -> set[int]:
    living = {
        leader.process.pid
        for leader in leaders
        if (seen := table.get(leader.process.pid)) is not None
        and leader.process.start == seen.start
    }
    found = _descendants(table, living)
    by_pid = {leader.process.pid: leader for leader in leaders}
    members: dict[int, list[int]] = {}
    for pid, seen in table.items():
        for led in {seen.session, seen.group}:
            if led in by_pid:
                members.setdefault(led, []).append(pid)
    for led, pids in members.items():
        # While a session or group has a member, its id is not used again. So if one member is known
        # to be of our time, all are ours.
        reaped = by_pid[led].reaped
        if led in living or (reaped is not None and any(table[pid].start < reaped for pid in pids)):
            found.update(pids)
    return found | _descendants(table, found)


def _descendants(table: dict[int, process_table.Seen], roots: Collection[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, seen in table.items():
        children.setdefault(seen.parent, []).append(pid)
    found: set[int] = set()
    todo = list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, ())
    return found
