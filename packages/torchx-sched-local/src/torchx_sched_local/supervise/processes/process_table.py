"""The processes of this machine: read from ``/proc`` on Linux, by psutil elsewhere."""

from __future__ import annotations

import errno
import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")

#: The environment variable that marks the processes of a replica. Each line of the value is the
#: token of a replica. There are several lines if a local job runs within another local job; the
#: token of the outermost job comes first.
ENV_REPLICA = "TORCHX_LOCAL_REPLICA"

#: Values of ``errno`` if this process, or the machine, has too many open files.
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

IS_LINUX = sys.platform.startswith("linux")
# The flag of kernel threads in /proc/PID/stat, which have no environment.
_PF_KTHREAD = 0x00200000
# How long a process may be in the midst of execve, and the pause between two looks, in seconds.
_EXECVE_SECONDS = 1.0
_EXECVE_PAUSE = 0.0005
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessInfo(NamedTuple):
    """The operating system's data about a process.

    Attributes:
        start: When the process started, in clock ticks: since boot on Linux, since 1970 elsewhere.
        parent: Pid of the parent process.
        session: Id of the session; 0 if unknown.
        state: One letter, as ``ps`` shows it: ``Z`` and ``X`` mean that the process has ended.
    """

    start: int
    parent: int
    session: int
    state: str


def now() -> int:
    """Return the current time in the unit of :attr:`ProcessInfo.start`."""
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) if IS_LINUX else time.time()
    return int(seconds * _TICKS_PER_SECOND)


@functools.cache
def boot_id() -> str:
    """Return an id that changes when the machine restarts; empty if this system has no such id."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def process_info(pid: int) -> ProcessInfo | None:
    """Return the data about a process, or None if it does not exist or cannot be read.

    Raises:
        OSError: Too many files are open, so processes cannot be read.
    """
    if not IS_LINUX:
        return _ask_psutil(lambda psutil: _psutil_info(psutil, psutil.Process(pid)), None)
    fields = _stat_fields(pid)
    if len(fields) < 20:
        return None
    return ProcessInfo(
        start=int(fields[19]),
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0].decode(),
    )


def all_processes() -> dict[int, ProcessInfo]:
    """Return all processes of the machine by their pids.

    Raises:
        OSError: Too many files are open, so processes cannot be read.
    """
    if IS_LINUX:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    else:
        pids = _ask_psutil(lambda psutil: psutil.pids(), [])
    found = ((pid, process_info(pid)) for pid in pids)
    return {pid: info for pid, info in found if info is not None}


def children() -> set[int]:
    """Return the pids of this process's children, including ended ones that were not reaped.

    On Linux, children that other threads than the main thread started are missing, because a
    process has one list of children for each thread. All orphans that this process adopts are in
    the list of the main thread.
    """
    me = os.getpid()
    data = _try_read(f"/proc/{me}/task/{me}/children")
    if data is not None:
        return set(map(int, data.split()))
    return {pid for pid, info in all_processes().items() if info.parent == me}


def read_tokens(pid: int) -> list[str]:
    """Return the tokens in the environment of a process; empty if it cannot be read.

    Raises:
        OSError: Too many files are open, so processes cannot be read.
    """
    value = _read_mark(pid) if IS_LINUX else _psutil_mark(pid)
    return value.split("\n") if value else []


def read_environ(pid: int) -> bytes | None:
    """Return the environment of a process as NUL-terminated strings, on Linux.

    In the midst of ``execve``, a process has no environment for a moment, so this function waits
    for at most one second.

    Returns:
        The environment, empty if the process has none; None if it cannot be read.

    Raises:
        OSError: Too many files are open, so processes cannot be read.
    """
    deadline = time.monotonic() + _EXECVE_SECONDS
    while True:
        environ = _try_read(f"/proc/{pid}/environ")
        if environ is None or environ or not _lacks_environ(pid) or time.monotonic() > deadline:
            return environ
        time.sleep(_EXECVE_PAUSE)


def exit_code_of_child(pid: int) -> int | None:
    """Return the exit code of a child of this process that has ended, and do not reap the child.

    The code is negative for a signal. The result is None if the child runs, or if the process is
    not a child of this process.
    """
    if not hasattr(os, "waitid"):
        return None
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def output_files(pid: int) -> list[str]:
    """Return the paths of a process's standard output and error; none if they are unknown.

    The paths are unknown on systems other than Linux, and for processes of other users.
    """
    folder = f"/proc/{pid}/fd"
    try:
        return [os.readlink(f"{folder}/1"), os.readlink(f"{folder}/2")]
    except OSError:
        return []  # closed, a kernel thread, or the process of another user


def with_token(environ: Mapping[str, str], token: str) -> str:
    """Return the value of :data:`ENV_REPLICA` for a process that inherits ``environ``."""
    outer = environ.get(ENV_REPLICA)
    return f"{outer}\n{token}" if outer else token


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` after the program's name: the first is the state.

    The result is empty if there is no such process.
    """
    data = _try_read(f"/proc/{pid}/stat") or b""
    # The program's name, in parentheses, may itself contain spaces and parentheses.
    return data[data.rfind(b")") + 2 :].split()


def _read_mark(pid: int) -> str:
    # Add a leading separator, so that the first variable is found like any other.
    environ = b"\0" + (read_environ(pid) or b"")
    key = b"\0" + ENV_REPLICA.encode() + b"="
    _, _, rest = environ.partition(key)
    return os.fsdecode(rest.partition(b"\0")[0])


def _lacks_environ(pid: int) -> bool:
    """Return True if the environment of a process that was empty will soon exist, or exists now.

    The fields of ``/proc/PID/stat`` are described in proc_pid_stat(5).
    """
    fields = _stat_fields(pid)
    if len(fields) < 49 or fields[0] in (b"Z", b"X") or int(fields[6]) & _PF_KTHREAD:
        return False
    start_code, env_start, env_end = int(fields[23]), int(fields[47]), int(fields[48])
    # execve sets start_code after it has written the environment.
    return start_code == 0 or env_end > env_start


def _try_read(path: str) -> bytes | None:
    """Return the content of a file in ``/proc``, or None if it cannot be read.

    Raises:
        OSError: Too many files are open, so it is unknown whether the process exists.
    """
    try:
        # Reading unbuffered bytes takes half the time of reading a text file.
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as e:
        if e.errno in NO_DESCRIPTOR:
            raise
        return None


def _psutil_info(psutil: Any, process: Any) -> ProcessInfo:
    with process.oneshot():
        is_zombie = process.status() == psutil.STATUS_ZOMBIE
        return ProcessInfo(
            start=int(process.create_time() * _TICKS_PER_SECOND),
            parent=process.ppid(),
            session=os.getsid(process.pid),
            state="Z" if is_zombie else "S",
        )


def _psutil_mark(pid: int) -> str:
    return _ask_psutil(lambda psutil: str(psutil.Process(pid).environ().get(ENV_REPLICA, "")), "")


def _ask_psutil(question: Callable[[Any], _T], otherwise: _T) -> _T:
    """Return ``question(psutil)``, or ``otherwise`` if the process has ended or is not readable."""
    import psutil

    try:
        return question(psutil)
    except OSError as e:
        if e.errno in NO_DESCRIPTOR:
            raise
        return otherwise
    except psutil.Error:
        return otherwise
