"""An iterator over the lines of a log file, for schedulers that were written for TorchX 0.7.

New code uses :func:`torchx_kit.logs.file_logs.log_lines`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from torchx_kit.logs.file_logs import Tail, log_lines
from torchx_specs.model.status import is_terminal

if TYPE_CHECKING:
    from torchx_specs.schedulers import Scheduler

# How often to query whether the app has ended, and until then whether the log exists, in seconds.
_CHECK_SECONDS = 0.5
_FILE_SECONDS = 0.1


class LogIterator:
    """Iterates over the lines of a log; if the log is followed, until the app has ended.

    A subclass may replace ``__init__`` and :meth:`_check_finished`. The other methods need only the
    attributes that ``__init__`` sets.

    Args:
        app_id: The app's id.
        log_file: Path of the log.
        scheduler: The app's scheduler; ``describe`` is called to check whether the app has ended.
        should_tail: Whether to follow the log until the app has ended.
    """

    _log_fp: IO[str] | None = None  # subclasses set this
    _app_finished: bool = False
    _should_tail: bool = True
    _lines: Iterator[str] = iter(())

    def __init__(
        self, app_id: str, log_file: str, scheduler: Scheduler[Any], should_tail: bool = True
    ) -> None:
        self._app_id = app_id
        self._log_file = log_file
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
        """Wait until the log exists.

        Raises:
            RuntimeError: There is no log, and the app has ended or the log is not followed.
        """
        self._check_finished()
        while not os.path.isfile(self._log_file):
            if self._app_finished:
                raise RuntimeError(
                    f"app: {self._app_id} finished without writing: {self._log_file}"
                )
            time.sleep(_FILE_SECONDS)
            self._check_finished()
        tail = Tail(self._has_ended, check_every=_CHECK_SECONDS)
        self._lines = iter(log_lines(self._log_file, tail=tail))
        return self

    def __next__(self) -> str:
        return next(self._lines)

    def _has_ended(self) -> bool:
        if not self._app_finished:
            self._check_finished()
        return self._app_finished
