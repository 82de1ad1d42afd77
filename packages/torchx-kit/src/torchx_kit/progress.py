"""Progress of steps that take long, such as the pull of an image.

Schedulers and workspace builders report each step::

    with Step("pulling python:3.12", total=52_000_000) as step:
        step.advance(1 << 20)

By default, a step writes a log line at most every :data:`LOG_INTERVAL` seconds. A program that
shows the steps itself calls :func:`show_progress`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

#: The shortest time between two log lines of a step, in seconds.
LOG_INTERVAL = 5.0

_display: Callable[[Step], None] | None = None


class Step:
    """A step that takes long, as a context manager; any thread may call its methods.

    Args:
        name: The name of the step, such as "pulling python:3.12".
        total: The size of the step; None if unknown.
        unit: The unit of sizes.
        quiet: If True, report nothing.
        clock: Function that returns a time in seconds.

    Attributes:
        done: The part of the step that is done, in ``unit``.
        began: When the step began, by ``clock``.
        has_ended: Whether the step has ended. It is True in the last report of the step.
    """

    def __init__(
        self,
        name: str,
        total: int | None = None,
        unit: Literal["bytes", "files"] = "bytes",
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.done = 0
        self._clock = clock
        self.began = clock()
        self.has_ended = False
        self._quiet = quiet
        self._lock = threading.Lock()
        self._logged_at = self.began

    def __enter__(self) -> Step:
        self._report()
        return self

    def __exit__(self, *error: object) -> None:
        self.has_ended = True
        self._report()

    def advance(self, count: int) -> None:
        """Add to the part that is done; a negative number subtracts work that must be repeated."""
        with self._lock:
            self.done += count
        self._report()

    def set(self, done: int, total: int | None) -> None:
        """Set the part that is done, and the size of the step."""
        with self._lock:
            self.done, self.total = done, total
        self._report()

    def _report(self) -> None:
        if self._quiet:
            return
        if _display is not None:
            _display(self)
            return
        now = self._clock()
        with self._lock:
            if self.has_ended or now - self._logged_at < LOG_INTERVAL:
                return
            self._logged_at = now
        import logging

        size = "" if self.total is None else f" of {self.total:,}"
        amount = f"{self.done:,}{size} {self.unit}"
        logging.getLogger(__name__).info("%s: %s", self.name, amount)


@contextmanager
def show_progress(display: Callable[[Step], None]) -> Iterator[None]:
    """Call ``display`` for all steps of this process but quiet ones, until the context ends.

    The calls come often and in any thread, whenever a step begins, advances or ends.
    """
    global _display
    before, _display = _display, display
    try:
        yield
    finally:
        _display = before
