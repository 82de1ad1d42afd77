"""An event loop for processes that end, and timers."""

from __future__ import annotations

import contextlib
import logging  # imported early: if too many files are open, a later import would fail
import os
import sched
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from torchx_sched_local.supervise.processes.replica_processes import open_pidfd

Callback = Callable[[], object]


class Reactor:
    """An event loop that runs in one thread until :meth:`stop`.

    The thread in :meth:`run` calls all callbacks. Other threads may only call :meth:`call_soon`.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        wake_end, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._selector.register(wake_end, selectors.EVENT_READ, partial(os.read, wake_end, 4096))
        self._soon: deque[Callback] = deque()
        self._timers = sched.scheduler(time.monotonic)
        self._is_stopped = False
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread

    def stop(self) -> None:
        """End the loop after the events that are due; only the loop's thread may call this."""
        self._is_stopped = True

    def call_soon(self, callback: Callback) -> None:
        """Call a function in the loop's thread; other threads and signal handlers may call this.

        Nothing happens if the loop was stopped.
        """
        with self._lock:
            if self._is_stopped:
                return
            self._soon.append(callback)
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes the loop, too
                os.write(self._wake, b".")

    def call_later(self, seconds: float, callback: Callback) -> None:
        """Call a function after a number of seconds."""
        self._timers.enter(seconds, 0, _call, (callback,))

    def on_exit(self, pid: int, callback: Callback) -> bool:
        """Call a function once a process has ended.

        Returns:
            False, without a later call, if the process cannot be watched; see
            :func:`~torchx_sched_local.supervise.processes.replica_processes.open_pidfd`.
        """
        try:
            fd = open_pidfd(pid)
        except ProcessLookupError:
            self.call_soon(callback)
            return True
        if fd is None:
            return False

        def ended() -> None:
            self._selector.unregister(fd)
            os.close(fd)
            callback()

        self._selector.register(fd, selectors.EVENT_READ, ended)
        return True

    def run(self) -> None:
        """Run the loop until it is stopped. This method may be called only once."""
        while not self._is_stopped:
            self._once()
        with self._lock:  # no other thread writes to the pipe now
            for key in list(self._selector.get_map().values()):
                os.close(key.fd)
            self._selector.close()
            os.close(self._wake)

    def _once(self) -> None:
        seconds = self._timers.run(blocking=False)
        for key, _ in self._selector.select(0 if self._soon else seconds):
            _call(key.data)
        for _ in range(len(self._soon)):
            _call(self._soon.popleft())


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:
        # The loop goes on: the app's other events must not be lost.
        logging.getLogger(__name__).exception("error in the supervision of local apps")
