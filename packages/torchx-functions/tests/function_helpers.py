"""Functions and errors that jobs import: jobs get the client's ``sys.path`` with this folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


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
