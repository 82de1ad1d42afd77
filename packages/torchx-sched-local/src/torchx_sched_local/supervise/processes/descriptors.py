"""Raises the limit of open files, and reports when few descriptors are left."""

from __future__ import annotations

import resource
import subprocess
import sys

from torchx_sched_local.supervise.processes.spawn import SpawnedProcess

# How many descriptors stay free for short operations of this process and for starting a process:
# files of /proc, logs and pipes.
_ROOM = 40
# How many descriptors a process may have open for other purposes.
_OTHERS = 128
_UNLIMITED = 1 << 30

_KIND = resource.RLIMIT_NOFILE
_original: int | None = None


def raise_limit(count: int) -> None:
    """Raise this process's limit of open files if it is too low; the limit stays raised.

    Args:
        count: How many descriptors are going to be open at the same time.
    """
    global _original
    soft, hard = _limits()
    if soft >= count + _OTHERS or soft >= hard:
        return
    try:
        maximum = resource.getrlimit(_KIND)[1]
        resource.setrlimit(_KIND, (maximum, maximum))
    except (OSError, ValueError):
        return  # on macOS, the actual limit is lower than the reported one
    if _original is None:
        _original = soft


def restore_limit(process: object) -> None:
    """Give a started process the limit that this process had before :func:`raise_limit`.

    A program that uses ``select`` fails with descriptors above 1023. Between its start and this
    call, the process has the higher limit for some microseconds.

    Args:
        process: The started process. Only a :class:`subprocess.Popen` or a :class:`SpawnedProcess`
            on Linux is changed, because the ``pid`` of another object may belong to an unrelated
            process.
    """
    if _original is None or not sys.platform.startswith("linux"):
        return
    if not isinstance(process, (subprocess.Popen, SpawnedProcess)):
        return
    if process.returncode is not None:
        return
    try:
        resource.prlimit(process.pid, _KIND, (_original, resource.getrlimit(_KIND)[1]))
    except (OSError, ValueError):
        pass  # the process has ended, or its program runs as another user (setuid)


def is_scarce(fd: int) -> bool:
    """Return True if a descriptor is so close to the limit that it must be closed again.

    The operating system returns the lowest free number, so a high number means many open files.
    """
    return fd >= _limits()[0] - _ROOM


def _limits() -> tuple[int, int]:
    soft, hard = resource.getrlimit(_KIND)
    return (
        _UNLIMITED if soft == resource.RLIM_INFINITY else soft,
        _UNLIMITED if hard == resource.RLIM_INFINITY else hard,
    )
