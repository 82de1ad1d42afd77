"""Signals that announce the end of the process."""

from __future__ import annotations

import os
import signal
import threading
import time

from torchx_resilience.contract import ENV_STOP_GRACE, STOP_SIGNALS
from torchx_resilience.errors import ResilienceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


def read_grace(text: str) -> dict[str, float]:
    """Return the seconds for each signal in a value such as ``SIGTERM=30,SIGUSR1=120``."""
    try:
        pairs = (part.partition("=") for part in text.split(",") if part.strip())
        return {name.strip(): float(seconds) for name, _, seconds in pairs}
    except ValueError as error:
        raise ResilienceError(
            f"{ENV_STOP_GRACE}={text!r} is not valid; an example: SIGTERM=30,SIGUSR1=120"
        ) from error


class StopSignals:
    """Notes the stop signals of a process.

    - SIGTERM is noted, and then an earlier handler in Python is called.
    - SIGUSR1 and SIGUSR2 are noted only if they have their default action. If the script handles or
      ignores one of them, it means something else there.
    - A child process that was forked, such as a worker of a ``DataLoader``, has the same handlers.
      There, SIGTERM acts as before, so that its parent can end it, and the others are ignored.

    Attributes:
        noted: Whether this process got a stop signal.
    """

    def __init__(self) -> None:
        self.noted = False
        self._grace = read_grace(os.environ.get(ENV_STOP_GRACE, ""))
        self._end: float | None = None
        self._pid = os.getpid()
        self._earlier: dict[int, Any] = {}

    def install(self) -> None:
        """Install the handlers.

        Raises:
            ResilienceError: This is not the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            raise ResilienceError(
                "attempt() was called in another thread than the main thread, where Python allows "
                "no signal handlers; call it in the main thread"
            )
        for name in STOP_SIGNALS:
            number = getattr(signal, name)
            earlier = signal.getsignal(number)
            # None: a handler that was not installed from Python, and cannot be called from it.
            if earlier == signal.SIG_DFL or (name == "SIGTERM" and earlier is not None):
                self._earlier[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Restore the earlier handlers, except where the script has installed another one since."""
        for number, earlier in self._earlier.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, earlier)

    def time_left(self) -> float | None:
        """Return the seconds until this process is killed; None if this is unknown."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def expect_end(self, seconds: float) -> None:
        """Take note of the time left on another rank, unless this process knows its own."""
        if self._end is None:
            self._end = time.monotonic() + seconds

    def _note(self, number: int, frame: FrameType | None) -> None:
        earlier = self._earlier[number]
        name = signal.Signals(number).name
        if os.getpid() == self._pid:
            self.noted = True
            if name in self._grace:
                self._end = time.monotonic() + self._grace[name]
        elif earlier == signal.SIG_DFL and name == "SIGTERM":
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if callable(earlier):
            earlier(number, frame)
