"""Raises the limit of open files, and reports when few descriptors are left."""

from __future__ import annotations

import resource
import subprocess
import sys

# Room for short operations of this process and for starting a process: files of /proc, logs, pipes.
_ROOM = 40
# How many descriptors a process has open for other purposes.
_OTHERS = 128
_UNLIMITED = 1 << 30

_KIND = resource.RLIMIT_NOFILE
_original: int | None = None


def raise_limit(count: int) -> None:
    """Raise this process's limit of open files if it is too low; it stays raised.

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
        return  # macOS has a lower limit than it reports
    if _original is None:
        _original = soft


def restore_limit(process: object) -> None:
    """Give a started process the limit that this process had before :func:`raise_limit`.

    A program that uses ``select`` fails with descriptors above 1023. The process has the higher
    limit for some microseconds.

    Args:
        process: The started process. Only a :class:`subprocess.Popen` on Linux is changed: the
            ``pid`` of any other object may be that of a process that is not ours.
    """
    if _original is None or not sys.platform.startswith("linux"):
        return
    if not isinstance(process, subprocess.Popen) or process.returncode is not None:
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
