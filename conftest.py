"""Settings for every test of the repository."""

from __future__ import annotations

import signal
from types import FrameType


def ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing on a signal."""


# Tests send signals to the processes that they start. A process that was started by `nohup`, or by
# `&` in a script, ignores some of them, and its children inherit that. They inherit no handler.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, ignore)
