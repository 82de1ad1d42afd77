"""Waiting for files to change, by the operating system's own events (inotify on Linux).

ctypes is loaded when the first file is watched, not before.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Any

#: Somebody wrote into a watched file, or cut it off.
MODIFIED = 0x2
#: A watched file was moved or removed.
GONE = 0x400 | 0x800
#: Something appeared in a watched folder.
APPEARED = 0x100 | 0x80

_IGNORED = 0x8000  # the watch has ended with its file
_ADD = 0x20000000  # add to what is watched already
_CLOEXEC_NONBLOCK = 0o2000000 | 0o4000
_EVENT_SIZE = 16
# Other machines write to these file systems and no event tells of it.
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
    """Watches files and folders; readable (``fileno()``) when something has happened.

    Users have few of these (128, by default, for all their programs): one for a whole program is
    plenty. :class:`Watcher` shares it.

    Raises:
        OSError: this system has no such events, or the user has too many already
    """

    def __init__(self) -> None:
        self._fd = -1
        if not sys.platform.startswith("linux"):
            raise OSError("this system has no inotify")
        self._fd = _call("inotify_init1", _CLOEXEC_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor to select on."""
        return self._fd

    def watch(self, path: str, events: int) -> int:
        """Watches a file or folder; returns the key under which :meth:`read` reports it.

        Watching one file twice gives the same key.

        Raises:
            OSError: there is no such file, or no watch is left
        """
        return _call("inotify_add_watch", self._fd, os.fsencode(path), events | _ADD)

    def forget(self, key: int) -> None:
        """Stops watching; does nothing if the watch has gone with its file."""
        try:
            _call("inotify_rm_watch", self._fd, key)
        except OSError:
            pass

    def read(self) -> dict[int, int]:
        """Returns the events since the last call, by key; does not wait."""
        happened: dict[int, int] = {}
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return happened
            at = 0
            while at < len(data):
                key = int.from_bytes(data[at : at + 4], sys.byteorder, signed=True)
                mask = int.from_bytes(data[at + 4 : at + 8], sys.byteorder)
                happened[key] = happened.get(key, 0) | mask
                at += _EVENT_SIZE + int.from_bytes(data[at + 12 : at + 16], sys.byteorder)

    def close(self) -> None:
        """Ends all watches; may be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class Watcher:
    """One thread's own view of the events that all watchers of this process share.

    Raises:
        OSError: this system has no such events
    """

    def __init__(self) -> None:
        self._happened: dict[int, int] = {}
        self._signal = threading.Event()
        self._hub = _Hub.join(self)

    def watch(self, path: str, events: int) -> int:
        """Watches a file or folder; returns the key under which :meth:`wait` reports it.

        Raises:
            OSError: there is no such file, or no watch is left
        """
        return self._hub.watch(self, path, events)

    def forget(self, key: int) -> None:
        """Stops watching."""
        self._hub.forget(self, key)

    def wait(self, seconds: float) -> dict[int, int]:
        """Waits until something happens, at most ``seconds``; returns the events by key."""
        self._signal.wait(max(seconds, 0))
        self._signal.clear()
        return self._hub.take(self)

    def close(self) -> None:
        """Ends its watches; may be called more than once."""
        self._hub.leave(self)


class _Hub:
    """Reads the events of the process, in a thread that lives as long as somebody watches."""

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
            for key in [key for key, them in self._by_key.items() if watcher in them]:
                self._drop(watcher, key)
            if not self._watchers:
                _Hub._current = None
                os.close(self._wake)  # the thread reads the end of it

    def watch(self, watcher: Watcher, path: str, events: int) -> int:
        with self._lock:
            key = self._events.watch(path, events)
            self._by_key.setdefault(key, set()).add(watcher)
            return key

    def forget(self, watcher: Watcher, key: int) -> None:
        with self._lock:
            self._drop(watcher, key)

    def take(self, watcher: Watcher) -> dict[int, int]:
        with self._lock:
            happened, watcher._happened = watcher._happened, {}
            return happened

    def _drop(self, watcher: Watcher, key: int) -> None:
        them = self._by_key.get(key)
        if them is None:
            return
        them.discard(watcher)
        if not them:
            del self._by_key[key]
            self._events.forget(key)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._events.fileno(), select.POLLIN)
        poll.register(self._wake_end, select.POLLIN)
        while all(fd != self._wake_end for fd, _ in poll.poll()):
            with self._lock:
                for key, mask in self._events.read().items():
                    for watcher in self._by_key.get(key, ()):
                        watcher._happened[key] = watcher._happened.get(key, 0) | mask
                        watcher._signal.set()
                    if mask & _IGNORED:
                        self._by_key.pop(key, None)
        self._events.close()
        os.close(self._wake_end)


def _forget_hub() -> None:
    # a forked process has the hub, but not its thread
    _Hub._current = None
    _Hub._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_hub)


def is_on_network(path: str) -> bool:
    """Returns True if ``path`` (or the nearest folder above it) is on a network file system."""
    import ctypes

    probe = nearest_folder(path)
    # struct statfs begins with the type, a long on every platform that has inotify but s390
    buffer = ctypes.create_string_buffer(512)
    try:
        _call("statfs", os.fsencode(probe), buffer)
    except OSError:
        return False
    kind = int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    return kind & 0xFFFFFFFF in _NETWORK_FILE_SYSTEMS


def nearest_folder(path: str) -> str:
    """Returns the folder nearest above ``path`` that exists."""
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
