"""Signals that interrupt a command, and the message that its app continues."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from torchx_cli.exit_codes import Terminated

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger(__name__)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise :class:`Terminated` in the main thread.

    A signal that is ignored, as ``nohup`` does with SIGHUP, stays so.
    """

    def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated()

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, raise_terminated)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_what_continues(app_handle: str) -> None:
    """Log that an app continues after an interrupt, and how to reach the app."""
    logger.warning(
        "%s continues; run 'torchx cancel %s' to end it, 'torchx wait %s' to wait for it again, or"
        " 'torchx log --tail %s' to follow its logs",
        *[app_handle] * 4,
    )
