"""A rate limit that threads share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimit:
    """Limits the rate of requests, but allows a burst of one second's requests. Thread-safe.

    Args:
        rate: Maximum number of requests per second.
        clock: Function that returns a time in seconds.
        sleep: Function that waits for a number of seconds.
    """

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval = 1 / rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # Each request reserves one interval, and may start up to a second before the end of that
        # interval. This is the end of the last reserved interval.
        self._booked = 0.0

    def wait(self) -> None:
        """Wait until the next request is due. Threads are served in the order of their calls."""
        with self._lock:
            now = self._clock()
            self._booked = max(self._booked, now) + self._interval
            pause = self._booked - now - 1.0
        if pause > 0:
            self._sleep(pause)
