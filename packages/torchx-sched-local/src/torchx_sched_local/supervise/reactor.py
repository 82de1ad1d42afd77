"""One thread that waits for everything: processes that end, files that change, time that passes."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_kit.logs.file_events import FileEvents

Callback = Callable[[], object]


class Timer:
    """A call that is due later."""

    def __init__(self, due: float, callback: Callback) -> None:
        self.due = due
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Takes it back."""
        self.callback = None


class Reactor:
    """Calls back when something has happened.

    All callbacks are called by the one thread that is in :meth:`run`; others may only call
    :meth:`call_soon` and :meth:`hold`. It runs as long as somebody holds it.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_end, self._wake = os.pipe()
        os.set_blocking(self._wake_end, False)
        os.set_blocking(self._wake, False)
        self._selector.register(self._wake_end, selectors.EVENT_READ, self._drain_wakes)
        self._soon: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._files: FileEvents | None = None
        self._no_files = False
        self._on_change: dict[int, Callback] = {}
        self._held = 0
        self._ended = False
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread

    def hold(self) -> bool:
        """Keeps it running; returns False if it has ended already."""
        with self._lock:
            if not self._ended:
                self._held += 1
            return not self._ended

    def release(self) -> None:
        """Lets it end, once nobody else holds it."""
        with self._lock:
            self._held -= 1

    def call_soon(self, callback: Callback) -> None:
        """Calls back in the reactor's thread, never if it has ended; also for signal handlers."""
        with self._lock:
            if self._ended:
                return
            self._soon.append(callback)
            try:
                os.write(self._wake, b".")
            except BlockingIOError:
                pass  # it has plenty to wake up from

    def call_next(self, callback: Callback) -> None:
        """Calls back after what else has happened by now; for callbacks alone."""
        self._soon.append(callback)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Calls back after a time."""
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, (timer.due, next(self._numbers), timer))
        return timer

    def on_exit(self, process: Any, callback: Callback) -> None:
        """Calls back once a process has ended, without waiting for it (no zombie is reaped).

        Args:
            process: a :class:`subprocess.Popen`, or anything with its ``wait``
            callback: to call
        """
        is_real = isinstance(process, subprocess.Popen) and process.returncode is None
        if is_real and self.on_pid_exit(process.pid, callback):
            return

        def wait() -> None:
            try:
                process.wait()
            finally:
                self.call_soon(callback)

        threading.Thread(target=wait, name=f"torchx-wait-{process.pid}", daemon=True).start()

    def on_pid_exit(self, pid: int, callback: Callback) -> bool:
        """Calls back once a process has ended; returns False if this system cannot tell."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.call_next(callback)
            return True
        except (OSError, AttributeError):
            return False

        def ended() -> None:
            self._selector.unregister(fd)
            os.close(fd)
            callback()

        self._selector.register(fd, selectors.EVENT_READ, ended)
        return True

    def on_change(self, path: str, callback: Callback) -> int | None:
        """Calls back whenever a file was written to.

        Returns:
            a key for :meth:`forget`, or None if this system cannot tell
        """
        from torchx_kit.logs.file_events import MODIFIED, FileEvents

        if self._no_files:
            return None
        try:
            if self._files is None:
                self._files = FileEvents()
                self._selector.register(self._files, selectors.EVENT_READ, self._files_changed)
            key = self._files.watch(path, MODIFIED)
        except FileNotFoundError:
            return None
        except OSError:
            self._no_files = True
            return None
        self._on_change[key] = callback
        return key

    def forget(self, key: int) -> None:
        """Takes an :meth:`on_change` back."""
        if self._on_change.pop(key, None) is not None and self._files is not None:
            self._files.unwatch(key)

    def run(self) -> None:
        """Calls back until nobody holds it any more; it can be run once."""
        while True:
            with self._lock:
                if self._held <= 0:
                    self._ended = True
                    break
            self._once()
        if self._files is not None:
            self._files.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        os.close(self._wake)

    def _once(self) -> None:
        for key, _ in self._selector.select(self._seconds_to_wait()):
            _call(key.data)
        for _ in range(len(self._soon)):
            _call(self._soon.popleft())
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                _call(timer.callback)

    def _seconds_to_wait(self) -> float | None:
        if self._soon:
            return 0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _drain_wakes(self) -> None:
        try:
            while os.read(self._wake_end, 4096):
                pass
        except BlockingIOError:
            pass

    def _files_changed(self) -> None:
        if self._files is not None:
            for key in self._files.read():
                callback = self._on_change.get(key)
                if callback is not None:
                    _call(callback)


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:
        import logging

        # whatever it was, the other jobs go on
        logging.getLogger(__name__).exception("in the supervision of local jobs")
