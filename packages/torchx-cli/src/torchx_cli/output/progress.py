"""Shows the progress of long steps: bars on a terminal, log lines elsewhere.

See :mod:`torchx_kit.progress`. The library rich is imported only when the first bar is shown.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchx_cli.output.colors import is_terminal
from torchx_cli.output.printing import TABLE, format_bytes
from torchx_cli.output.terminal_safety import escape_controls
from torchx_kit.progress import Step, show_progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: A step gets a bar once it has taken this many seconds.
_DELAY = 0.5
_NAME_WIDTH = 60


@contextmanager
def shown_progress(output_format: str) -> Iterator[None]:
    """Show the progress of steps on standard error, until the end of the context.

    If standard error is a terminal, steps have bars. Elsewhere, and on a terminal that cannot move
    the cursor (``TERM=dumb``), they are logged as usual.

    Args:
        output_format: The format of the command's result. Progress is shown only with a table,
            because the other formats are for scripts.
    """
    if output_format != TABLE:
        with show_progress(lambda step: None):
            yield
        return
    is_shown = logging.getLogger().isEnabledFor(logging.INFO)
    if not is_shown or not is_terminal(sys.stderr) or os.environ.get("TERM", "") in ("", "dumb"):
        yield
        return
    bars = _Bars()
    try:
        with show_progress(bars.update):
            yield
    finally:
        bars.close()


class _Bars:
    """One bar for each step that takes long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._tasks: dict[Step, TaskID] = {}
        self._is_closed = False

    def update(self, step: Step) -> None:
        """Show the current state of a step."""
        with self._lock:
            if self._is_closed:
                return  # After an interrupt, other threads may still report for a moment.
            if step not in self._tasks:
                if step.has_ended or time.monotonic() - step.began < _DELAY:
                    return
                self._tasks[step] = self._opened().add_task(_name(step), amount="")
            self._opened().update(
                self._tasks[step],
                completed=step.done,
                total=step.total,
                amount=amount(step),
            )

    def close(self) -> None:
        """Stop drawing; the bars stay on the screen, and the cursor is below them."""
        with self._lock:
            self._is_closed = True
            if self._progress is not None:
                self._progress.stop()

    def _opened(self) -> Progress:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[amount]}", markup=False),
                TimeRemainingColumn(),
                console=Console(file=sys.stderr),
                redirect_stdout=False,
            )
            self._progress.start()
        return self._progress


def amount(step: Step) -> str:
    """Return the progress of a step as a text, such as "12.0 MB of 52.0 MB"."""
    done, total = step.done, step.total
    if step.unit == "files":
        return f"{done} files" if total is None else f"{done} of {total} files"
    return format_bytes(done) + ("" if total is None else f" of {format_bytes(total)}")


def _name(step: Step) -> str:
    from torchx_specs.redaction import masked_text

    name = escape_controls(masked_text(step.name))
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
