"""Changes of files, as the operating system reports them (inotify on Linux)."""

from __future__ import annotations

import os
import sys
from typing import Any

# Constants of inotify(7). The first one: a file was written to or truncated.
_MODIFIED = 0x2
_ADD_TO_WATCH = 0x20000000
_CLOEXEC_NONBLOCK = 0o2000000 | 0o4000
_EVENT_SIZE = 16

_libc: Any = None


class FileEvents:
    """A set of watches on files.

    ``fileno()`` becomes readable when there are events. The system limits the number of these
    objects for each user (to 128 by default).

    Raises:
        OSError: This system has no file events, or the user has too many of these objects.
    """

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("this system does not report file changes: it has no inotify")
        self._fd = _call("inotify_init1", _CLOEXEC_NONBLOCK)

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when there are events."""
        return self._fd

    def watch(self, path: str) -> int:
        """Watch a file, and return the key under which :meth:`read` reports its changes.

        Watching the same file twice returns the same key.

        Args:
            path: The file.

        Raises:
            OSError: The file does not exist, or the user has too many watches.
        """
        return _call("inotify_add_watch", self._fd, os.fsencode(path), _MODIFIED | _ADD_TO_WATCH)

    def unwatch(self, key: int) -> None:
        """End a watch; do nothing if the watch already ended because the file was deleted."""
        try:
            _call("inotify_rm_watch", self._fd, key)
        except OSError:
            pass

    def read(self) -> set[int]:
        """Return the keys of the files that have changed since the last call, without waiting."""
        keys: set[int] = set()
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return keys
            start = 0
            while start < len(data):
                keys.add(int.from_bytes(data[start : start + 4], sys.byteorder, signed=True))
                name_bytes = int.from_bytes(data[start + 12 : start + 16], sys.byteorder)
                start += _EVENT_SIZE + name_bytes

    def close(self) -> None:
        """End all watches."""
        os.close(self._fd)


def _call(function: str, *args: Any) -> int:
    global _libc
    import ctypes

    if _libc is None:
        _libc = ctypes.CDLL(None, use_errno=True)
    result: int = getattr(_libc, function)(*args)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
