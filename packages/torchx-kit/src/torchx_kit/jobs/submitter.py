"""The process that submits an app, so that others notice if it was killed during the submission."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

#: How long a program that a killed process has started, such as ``qsub``, may still submit a job,
#: counted from the beginning of the submission, in seconds.
GRACE_SECONDS = 15.0
#: After this time, a submission counts as interrupted if its process is unknown or belongs to
#: another machine, in seconds.
OTHER_MACHINE_SECONDS = 900.0


def this_process() -> dict[str, Any]:
    """Return the machine, the pid and the start time of this process, which identify it."""
    pid = os.getpid()
    return {"machine": _machine(), "pid": pid, "started": _start_time(pid)}


def has_ended(process: Mapping[str, Any]) -> bool | None:
    """Return whether a process has ended; None if it is unknown or belongs to another machine.

    Args:
        process: The result of :func:`this_process` in that process.
    """
    pid = process.get("pid")
    if process.get("machine") != _machine() or not isinstance(pid, int) or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process belongs to another user
    return bool(process.get("started") != _start_time(pid))


def is_interrupted(process: Mapping[str, Any], began: float, grace: float = GRACE_SECONDS) -> bool:
    """Return whether a submission that has not ended was interrupted.

    Args:
        process: The submitting process, from :func:`this_process`.
        began: When the submission began, in epoch seconds.
        grace: How long a program that the process has started may continue the submission, in
            seconds.
    """
    ended = has_ended(process)
    wait = OTHER_MACHINE_SECONDS if ended is None else grace
    return ended is not False and time.time() - began > wait


def _machine() -> str:
    """Return the host name and, on Linux, the ids of the boot and of the PID namespace.

    The ids distinguish machines and containers that have the same host name.
    """
    parts = [os.uname().nodename]
    try:
        parts.append(_text("/proc/sys/kernel/random/boot_id").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux
    return " ".join(parts)


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty if unknown or a zombie."""
    try:
        # the name of the program, in parentheses, may contain spaces
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        return ""
