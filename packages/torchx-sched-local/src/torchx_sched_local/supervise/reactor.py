"""An event loop for processes that end, and timers."""

from __future__ import annotations

import heapq
import itertools
import logging  # imported early: if too many files are open, a later import would fail
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable

from torchx_sched_local.supervise.processes.replica_processes import open_pidfd

Callback = Callable[[], object]


class Timer:
    """A call that is due later.

    Args:
        due: When to call, in seconds of :func:`time.monotonic`.
        callback: The function to call.
    """

    def __init__(self, due: float, callback: Callback) -> None:
        self.due = due
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None


class Reactor:
    """An event loop that runs in one thread until each :meth:`hold` was undone by a release.

    The thread in :meth:`run` calls all callbacks. Other threads may only call :meth:`call_soon`,
    and :meth:`hold`.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_end, self._wake = os.pipe()
        os.set_blocking(self._wake_end, False)
        os.set_blocking(self._wake, False)
        self._selector.register(self._wake_end, selectors.EVENT_READ, self._drain_wake_pipe)
        self._soon: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._held = 0
        self._ended = False
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread

    def hold(self) -> bool:
        """Keep the loop running, and return False if it has ended already."""
        with self._lock:
            if not self._ended:
                self._held += 1
            return not self._ended

    def release(self) -> None:
        """Undo one call of :meth:`hold`; the loop ends once every such call is undone."""
        with self._lock:
            self._held -= 1

    def call_soon(self, callback: Callback) -> None:
        """Call a function in the loop's thread; other threads and signal handlers may call this.

        Nothing happens if the loop has ended.
        """
        with self._lock:
            if self._ended:
                return
            self._soon.append(callback)
            try:
                os.write(self._wake, b".")
            except BlockingIOError:
                pass  # the pipe is full, so the loop will wake up

    def call_next(self, callback: Callback) -> None:
        """Call a function after the pending events; only the loop's thread may call this."""
        self._soon.append(callback)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call a function after a number of seconds; the returned timer can cancel the call."""
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, (timer.due, next(self._numbers), timer))
        return timer

    def on_exit(self, pid: int, callback: Callback) -> bool:
        """Call a function once a process has ended.

        Returns:
            False, without a later call, if the process cannot be watched; see
            :func:`~torchx_sched_local.supervise.processes.replica_processes.open_pidfd`.
        """
        try:
            fd = open_pidfd(pid)
        except ProcessLookupError:
            self.call_next(callback)
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
        """Run the loop until no caller holds it. This method may be called only once."""
        while True:
            with self._lock:
                if self._held <= 0:
                    self._ended = True
                    break
            self._once()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
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

    def _drain_wake_pipe(self) -> None:
        try:
            while os.read(self._wake_end, 4096):
                pass
        except BlockingIOError:
            pass


def _call(callback: Callback) -> None:
    try:
        callback()
    except Exception:
        # The loop continues for the other apps.
        logging.getLogger(__name__).exception("error in the supervision of local apps")
