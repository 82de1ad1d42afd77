"""Starts processes with less overhead than :class:`subprocess.Popen`; reads their exit codes."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from io import FileIO
from typing import Any

_POLL_SECONDS = 0.01
# Python ignores these signals; a program expects their default action.
_IGNORED_BY_PYTHON = [
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name)
]


class SpawnedProcess:
    """A started child; has the methods of :class:`subprocess.Popen` that a supervision uses.

    Args:
        pid: The process id.

    Attributes:
        pid: The process id.
        returncode: The exit code, negative for a signal; None before the process was reaped; 0 if
            other code in this process has reaped it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        with self._lock:
            if self.returncode is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:
                    self.returncode = 0  # other code in this process has reaped the child
                else:
                    if pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return the exit code.

        Args:
            timeout: How long to wait, in seconds; None means without a limit.

        Raises:
            subprocess.TimeoutExpired: The process has not ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code

    def kill(self) -> None:
        """Kill the process."""
        with self._lock:
            if self.returncode is None:
                os.kill(self.pid, signal.SIGKILL)


def spawn(
    args: list[str],
    env: Mapping[str, str],
    stdout: FileIO | None,
    stderr: FileIO | None,
    cwd: str | None,
) -> SpawnedProcess | None:
    """Start a process as the leader of a new session.

    All other descriptors of this process must be non-inheritable, as they are by default in Python.

    Args:
        args: The arguments, with the name of the program first.
        env: The complete environment.
        stdout: The file for standard output.
        stderr: The file for standard error.
        cwd: The working directory; None means that of this process.

    Returns:
        The process. None if it must be started by :class:`subprocess.Popen`, which raises an exact
        error.
    """
    program = _which(args[0], env.get("PATH"), int(time.monotonic())) if args else None
    if program is None or stdout is None or stderr is None or cwd not in (None, os.getcwd()):
        return None
    try:
        pid = os.posix_spawn(
            program,
            args,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdout.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, stderr.fileno(), 2),
            ],
            setsid=True,
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except (OSError, ValueError, NotImplementedError):
        return None
    return SpawnedProcess(pid)


@functools.lru_cache(maxsize=16)
def _which(name: str, path: str | None, second: int) -> str | None:
    """Return the path of a program; the result is cached during one second of the clock."""
    return None if "\0" in name else shutil.which(name, path=path)


def is_child(process: Any) -> bool:
    """Return True if a process is a child of this process that was not reaped.

    Args:
        process: A process that the scheduler or a subclass of it has started. A subclass may start
            something else than a process of this machine.
    """
    return isinstance(process, (subprocess.Popen, SpawnedProcess)) and process.returncode is None


def read_exit_code(process: Any) -> int | None:
    """Return the exit code of a process, negative for a signal; None while the process runs.

    A child of this process is not reaped, so that another process can read the exit code if this
    process is killed.
    """
    code = child_exit_code(process.pid) if is_child(process) else None
    return process.poll() if code is None else code


def child_exit_code(pid: int) -> int | None:
    """Return the exit code of a child of this process that has ended, and do not reap the child.

    The result is None if the child runs, or if the process is not a child of this process.
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
