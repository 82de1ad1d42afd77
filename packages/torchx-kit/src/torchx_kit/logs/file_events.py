"""Changes of files, as the operating system reports them (inotify on Linux)."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Any

#: A watched file was written to or truncated.
MODIFIED = 0x2
#: A watched file or folder was moved or deleted.
REMOVED = 0x400 | 0x800
#: A file or folder appeared in a watched folder.
APPEARED = 0x100 | 0x80

# Constants of inotify(7).
_WATCH_ENDED = 0x8000
_ADD_TO_WATCH = 0x20000000
_CLOEXEC_NONBLOCK = 0o2000000 | 0o4000
_EVENT_SIZE = 16
# File system types of statfs(2) where writes of other machines cause no events.
_NETWORK_FILE_SYSTEMS = frozenset(
    {
        0x6969,  # NFS
        0xFF534D42,  # CIFS
        0xFE534D42,  # SMB 2
        0x517B,  # SMB
        0x0BD00BD0,  # Lustre
        0x47504653,  # GPFS
        0x00C36400,  # Ceph
        0x01021997,  # 9P
        0x65735546,  # FUSE: sshfs, buckets
        0x5346414F,  # AFS
        0x19830326,  # BeeGFS
        0x61636673,  # ACFS
    }
)

_libc: Any = None


class FileEvents:
    """A set of watches on files and folders.

    ``fileno()`` becomes readable when there are events. The system limits the number of these
    objects for each user (to 128 by default), so all watchers of a process share one object
    (:class:`Watcher`).

    Raises:
        OSError: This system has no file events, or the user has too many of these objects.
    """

    def __init__(self) -> None:
        self._fd = -1
        if not sys.platform.startswith("linux"):
            raise OSError("this system does not report file changes: it has no inotify")
        self._fd = _call("inotify_init1", _CLOEXEC_NONBLOCK)

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when there are events."""
        return self._fd

    def watch(self, path: str, events: int) -> int:
        """Watch a file or folder, and return the key under which :meth:`read` reports its events.

        Watching the same file twice returns the same key.

        Args:
            path: The file or folder.
            events: :data:`MODIFIED`, :data:`REMOVED` and :data:`APPEARED`, combined by ``|``.

        Raises:
            OSError: The file does not exist, or the user has too many watches.
        """
        return _call("inotify_add_watch", self._fd, os.fsencode(path), events | _ADD_TO_WATCH)

    def unwatch(self, key: int) -> None:
        """End a watch; do nothing if the watch already ended because the file was deleted."""
        try:
            _call("inotify_rm_watch", self._fd, key)
        except OSError:
            pass

    def read(self) -> dict[int, int]:
        """Return the events since the last call, by the keys of :meth:`watch`, without waiting."""
        events: dict[int, int] = {}
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return events
            start = 0
            while start < len(data):
                key = int.from_bytes(data[start : start + 4], sys.byteorder, signed=True)
                mask = int.from_bytes(data[start + 4 : start + 8], sys.byteorder)
                events[key] = events.get(key, 0) | mask
                name_bytes = int.from_bytes(data[start + 12 : start + 16], sys.byteorder)
                start += _EVENT_SIZE + name_bytes

    def close(self) -> None:
        """End all watches; may be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class Watcher:
    """Watches of one thread; all watchers of the process share one :class:`FileEvents`.

    Attributes:
        signal: Is set when there are events. Another thread may set it to end :meth:`wait`.

    Raises:
        OSError: This system has no file events.
    """

    def __init__(self) -> None:
        self._events: dict[int, int] = {}
        self.signal = threading.Event()
        self._hub = _Hub.join(self)

    def watch(self, path: str, events: int) -> int:
        """Watch a file or folder, and return the key under which :meth:`wait` reports its events.

        Raises:
            OSError: The file does not exist, or the user has too many watches.
        """
        return self._hub.watch(self, path, events)

    def unwatch(self, key: int) -> None:
        """End a watch."""
        self._hub.unwatch(self, key)

    def wait(self, seconds: float) -> dict[int, int]:
        """Wait for events, at most ``seconds``; return them by the keys of :meth:`watch`."""
        self.signal.wait(max(seconds, 0))
        self.signal.clear()
        return self._hub.take(self)

    def close(self) -> None:
        """End all watches of this watcher; may be called more than once."""
        self._hub.leave(self)


class _Hub:
    """Reads the events of the process, in a thread that lives as long as there is a watcher."""

    _lock = threading.Lock()
    _current: _Hub | None = None

    def __init__(self) -> None:
        self._events = FileEvents()
        self._watchers: set[Watcher] = set()
        self._by_key: dict[int, set[Watcher]] = {}
        self._wake_end, self._wake = os.pipe()
        threading.Thread(target=self._run, name="torchx-file-events", daemon=True).start()

    @classmethod
    def join(cls, watcher: Watcher) -> _Hub:
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            cls._current._watchers.add(watcher)
            return cls._current

    def leave(self, watcher: Watcher) -> None:
        with self._lock:
            if watcher not in self._watchers:
                return
            self._watchers.discard(watcher)
            for key in [key for key, users in self._by_key.items() if watcher in users]:
                self._end_watch(watcher, key)
            if not self._watchers:
                _Hub._current = None
                os.close(self._wake)  # closing the pipe ends the thread, which reads its other end

    def watch(self, watcher: Watcher, path: str, events: int) -> int:
        with self._lock:
            key = self._events.watch(path, events)
            self._by_key.setdefault(key, set()).add(watcher)
            return key

    def unwatch(self, watcher: Watcher, key: int) -> None:
        with self._lock:
            self._end_watch(watcher, key)

    def take(self, watcher: Watcher) -> dict[int, int]:
        with self._lock:
            events, watcher._events = watcher._events, {}
            return events

    def _end_watch(self, watcher: Watcher, key: int) -> None:
        users = self._by_key.get(key)
        if users is None:
            return
        users.discard(watcher)
        if not users:
            del self._by_key[key]
            self._events.unwatch(key)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._events.fileno(), select.POLLIN)
        poll.register(self._wake_end, select.POLLIN)
        while all(fd != self._wake_end for fd, _ in poll.poll()):
            with self._lock:
                for key, mask in self._events.read().items():
                    for watcher in self._by_key.get(key, ()):
                        watcher._events[key] = watcher._events.get(key, 0) | mask
                        watcher.signal.set()
                    if mask & _WATCH_ENDED:
                        self._by_key.pop(key, None)
        self._events.close()
        os.close(self._wake_end)


def _forget_hub() -> None:
    # A forked process inherits the hub, but not its thread.
    _Hub._current = None
    _Hub._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_hub)


def is_on_network(path: str) -> bool:
    """Return True if the nearest existing folder above ``path`` is on a network file system."""
    import ctypes  # slow to import, and many logs end before they need it

    folder = nearest_folder(path)
    # The first field of struct statfs is the type, which is a long (except on s390).
    buffer = ctypes.create_string_buffer(512)
    try:
        _call("statfs", os.fsencode(folder), buffer)
    except OSError:
        return False
    kind = int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    return kind & 0xFFFFFFFF in _NETWORK_FILE_SYSTEMS


def nearest_folder(path: str) -> str:
    """Return the nearest folder above ``path`` that exists."""
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


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
