"""Writes the records of ended apps to the disk, once a second for all apps of a process.

For a short app, a separate ``fsync`` takes longer than everything else in its supervision.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

_PAUSE_SECONDS = 1.0


class SharedSync:
    """Synchronizes the file systems of ended apps; any thread may call the methods. Linux only."""

    def __init__(self) -> None:
        self._syncfs = ctypes.CDLL(None).syncfs
        # A descriptor of each file system to synchronize, by the file system's device.
        self._waiting: dict[int, int] = {}
        self._lock = threading.Lock()
        self._running = threading.Lock()

    def add(self, fd: int) -> None:
        """Write the changed files of a file system to the disk, about a second from now.

        Args:
                fd: A descriptor of a folder in the file system. The caller may close it afterwards.

        Raises:
            OSError: Too many files are open.
        """
        device = os.fstat(fd).st_dev
        with self._lock:
            is_first = not self._waiting
            if device not in self._waiting:
                self._waiting[device] = os.dup(fd)
        if is_first:
            threading.Thread(target=self._run_later, name="torchx-sync", daemon=True).start()

    def run(self) -> None:
        """Write the changed files now, and return when they are on the disk."""
        with self._running:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            for fd in waiting.values():
                self._syncfs(fd)
                os.close(fd)

    def _run_later(self) -> None:
        time.sleep(_PAUSE_SECONDS)
        self.run()
