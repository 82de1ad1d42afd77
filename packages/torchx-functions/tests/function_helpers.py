"""Functions and errors that jobs import: jobs get the client's ``sys.path`` with this folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from torchx_functions import DelayedSubmission


def interrupt() -> None:
    """End the program as Ctrl-C does."""
    raise KeyboardInterrupt


def announce_and_sleep(path: str) -> None:
    Path(path).touch()
    time.sleep(1200)


class Unpickled:
    """An object that calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


class UnloadableError(Exception):
    """An exception that cannot be unpickled: its constructor needs more than pickle passes."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class Counter:
    """Counts to a number, and goes on from the reached number after a stop.

    Args:
        folder: Where the attempts leave their process ids, as files ``pid-COUNT``.
        following: What ``checkpoint`` returns: the object, another call, nothing, or an error.
    """

    def __init__(self, folder: str, following: str = "object") -> None:
        self.folder, self.following, self.count = folder, following, 0

    def __call__(self, until: int, *, step: int = 1) -> tuple[int, int]:
        started = self.count
        while self.count < until:
            Path(self.folder, f"pid-{self.count}").write_text(str(os.getpid()))
            wanted = Path(self.folder, f"go-{self.count}")
            while not wanted.exists():
                time.sleep(0.02)
            self.count += step
        return started, self.count

    def checkpoint(self, until: int, *, step: int = 1) -> object:
        if self.following == "call":
            return DelayedSubmission(self, until, step=step * 10)
        if self.following == "error":
            raise OSError("no space left on device")
        return self if self.following == "object" else None
