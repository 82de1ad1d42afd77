"""A clock for tests of product classes that take ``clock`` and ``sleep``."""

from __future__ import annotations


class ManualClock:
    """A clock that advances only when a test or :meth:`sleep` advances it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
