"""Settings for every test of the repository."""

from __future__ import annotations

import signal
from types import FrameType


def ignore(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


# Tests send signals to the processes that they start. If pytest was started by `nohup`, or by `&`
# in a script, it ignores some signals, and its child processes would ignore them too. A handler
# prevents that: child processes do not inherit handlers.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, ignore)
