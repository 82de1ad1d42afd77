"""Print the progress of a build: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

_WIDTH = 30
_MB = 1 << 20
#: The shortest time between two updates, in seconds.
_BAR_INTERVAL = 0.1
_LINE_INTERVAL = 5.0


class Progress:
    """Prints how many bytes of the current step of a build were processed.

    Args:
        name: The name of the image.
        quiet: Whether to print nothing.
        stream: Where to print; the default is standard error.
    """

    def __init__(self, name: str, quiet: bool = False, stream: TextIO | None = None) -> None:
        head, _, tag = name.rpartition(":")
        self._name = f"{head}:{tag[:12]}"
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._bar = self._stream.isatty()
        self._step = ""
        self._total = self._done = 0
        self._printed_at = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def begin(self, step: str, total: int) -> None:
        """Begin another step of the build.

        Args:
            step: The name of the step, for example "pushing".
            total: The size of the step, in bytes.
        """
        self._end()
        self._step, self._total, self._done = step, total, 0
        self._printed_at = time.monotonic()

    def advance(self, done: int) -> None:
        """Add ``done`` bytes to the current step."""
        self._done += done
        now = time.monotonic()
        if now - self._printed_at >= (_BAR_INTERVAL if self._bar else _LINE_INTERVAL):
            self._printed_at = now
            self._print()

    def _print(self, last: bool = False) -> None:
        if self._quiet:
            return
        part = min(self._done / self._total, 1.0) if self._total else 1.0
        amount = f"{min(self._done, self._total) / _MB:.1f} of {self._total / _MB:.1f} MB"
        if self._bar:
            bar = "#" * int(part * _WIDTH)
            end = "\n" if last else ""
            line = f"\r\033[K{self._step} [{bar:<{_WIDTH}}] {amount}{end}"
        else:
            line = f"{self._name}: {self._step}, {amount}\n"
        self._stream.write(line)
        self._stream.flush()

    def _end(self) -> None:
        if self._step:
            self._print(last=True)
            self._step = ""
