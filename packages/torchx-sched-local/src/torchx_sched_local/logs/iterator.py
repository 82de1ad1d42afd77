"""An iterator over the lines of a log file, for schedulers that were written for TorchX 0.7.

New code uses :func:`torchx_kit.logs.file_logs.log_lines`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from torchx_kit.logs.lines import split_lines
from torchx_kit.logs.log_file import LONGEST_LINE_BYTES
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_specs.schedulers import Scheduler

_READ_CHARACTERS = 1 << 16
_SHORTEST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5


class _IncompleteLine:
    """The beginning of a line whose end was not read yet; a limited number of characters is kept.

    Args:
        path: Path of the log, for the remark on a line that is too long.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._parts: list[str] = []
        self._length = 0
        self._skipped = 0

    def add(self, text: str) -> None:
        """Append text; characters that make the line too long are counted but not kept."""
        kept = text[: LONGEST_LINE_BYTES - self._length]
        if kept:
            self._parts.append(kept)
        self._length += len(kept)
        self._skipped += len(text) - len(kept)

    def take(self, end: str = "") -> str:
        """Return the line, completed with ``end``, and begin the next line."""
        if self._parts:
            self.add(end.removesuffix("\n"))
            if self._skipped:
                remark = f" [{self._skipped} more characters of this line are in {self._path}]"
                self._parts.append(remark)
            end = "".join(self._parts) + ("\n" if end else "")
        self._parts = []
        self._length = self._skipped = 0
        return end


class LogIterator:
    """Iterates over the lines of a log; if the log is followed, until the app has ended.

    A subclass may replace ``__init__`` and :meth:`_check_finished`. The other methods need only the
    attributes below.

    Args:
        app_id: The app's id.
        log_file: Path of the log.
        scheduler: The app's scheduler; ``describe`` is called to check whether the app has ended.
        should_tail: Whether to follow the log until the app has ended.
    """

    _app_id: str
    _log_file: str
    _scheduler: Scheduler[Any]
    _log_fp: IO[str] | None = None
    _app_finished: bool = False
    _should_tail: bool = True
    _lines: Iterator[str] | None = None

    def __init__(
        self, app_id: str, log_file: str, scheduler: Scheduler[Any], should_tail: bool = True
    ) -> None:
        self._app_id = app_id
        self._log_file = log_file
        self._log_fp = None
        self._scheduler = scheduler
        self._should_tail = should_tail
        self._app_finished = not should_tail

    def _check_finished(self) -> None:
        """Set ``_app_finished`` if the app has ended or the log is not followed."""
        if not self._should_tail:
            self._app_finished = True
            return
        app = self._scheduler.describe(self._app_id)
        if app is None or is_terminal(app.state):
            self._app_finished = True

    def __iter__(self) -> LogIterator:
        """Wait until the log exists, and open it.

        Raises:
            RuntimeError: There is no log, and the app has ended or the log is not followed.
        """
        pause = _SHORTEST_PAUSE_SECONDS
        self._check_finished()
        while not os.path.isfile(self._log_file):
            if self._app_finished:
                raise RuntimeError(
                    f"app: {self._app_id} finished without writing: {self._log_file}"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
            self._check_finished()
        self._log_fp = open(  # noqa: SIM115 - closed with the last line
            self._log_file, encoding="utf-8", errors="replace", newline="\n"
        )
        self._lines = None
        return self

    def __next__(self) -> str:
        if self._log_fp is None:
            raise StopIteration
        if self._lines is None:
            self._lines = self._read()
        return next(self._lines)

    def _read(self) -> Iterator[str]:
        log = self._log_fp
        if log is None:
            return
        incomplete_line = _IncompleteLine(self._log_file)
        pause = _SHORTEST_PAUSE_SECONDS
        with log:
            while True:
                # Read this flag before the log, so that no line from before the app's end is lost.
                finished = self._app_finished
                text = log.read(_READ_CHARACTERS)
                if text:
                    pause = _SHORTEST_PAUSE_SECONDS
                    lines = split_lines(text)
                    rest = lines.pop() if not lines[-1].endswith("\n") else ""
                    if lines:
                        lines[0] = incomplete_line.take(lines[0])
                    incomplete_line.add(rest)
                    yield from lines
                elif finished:
                    if last_line := incomplete_line.take():
                        yield last_line
                    return
                else:
                    self._check_finished()
                    if not self._app_finished:
                        time.sleep(pause)
                        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
