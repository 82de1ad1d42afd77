"""How far a build is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

_WIDTH = 30
_MB = 1 << 20
_BETWEEN_BARS = 0.1
_BETWEEN_LINES = 5.0


class Progress:
    """Tells how many bytes of something are done.

    Args:
        name: what is made
        quiet: tells nothing
        stream: where to
    """

    def __init__(self, name: str, quiet: bool = False, stream: TextIO | None = None) -> None:
        head, _, tag = name.rpartition(":")
        self._name = f"{head}:{tag[:12]}"
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._bar = self._stream.isatty()
        self._what = ""
        self._total = self._done = 0
        self._told = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def begin(self, what: str, total: int) -> None:
        """Begins another part of the work, of that many bytes."""
        self._end()
        self._what, self._total, self._done = what, total, 0
        self._told = time.monotonic()

    def advance(self, done: int) -> None:
        """Tells that so many bytes more are done."""
        self._done += done
        now = time.monotonic()
        if now - self._told >= (_BETWEEN_BARS if self._bar else _BETWEEN_LINES):
            self._told = now
            self._tell()

    def _tell(self, last: bool = False) -> None:
        if self._quiet:
            return
        part = min(self._done / self._total, 1.0) if self._total else 1.0
        amount = f"{min(self._done, self._total) / _MB:.1f} of {self._total / _MB:.1f} MB"
        if self._bar:
            bar = "#" * int(part * _WIDTH)
            end = "\n" if last else ""
            line = f"\r\033[K{self._what} [{bar:<{_WIDTH}}] {amount}{end}"
        else:
            line = f"{self._name}: {self._what}, {amount}\n"
        self._stream.write(line)
        self._stream.flush()

    def _end(self) -> None:
        if self._what:
            self._tell(last=True)
            self._what = ""
