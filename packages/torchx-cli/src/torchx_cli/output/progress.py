"""Shows the progress of long steps: bars on a terminal, log lines elsewhere.

See :mod:`torchx_kit.progress`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torchx_cli.output.live_region import LiveRegion
from torchx_cli.output.printing import TABLE, format_bytes
from torchx_cli.output.terminal import can_replace_text, escape_controls
from torchx_kit.progress import Step, show_progress

#: A step gets a bar once it has taken this many seconds.
_DELAY = 0.5
_DRAW_SECONDS = 0.1
_BAR_WIDTH = 30
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
    if not logging.getLogger().isEnabledFor(logging.INFO) or not can_replace_text(sys.stderr):
        yield
        return
    bars = _Bars()
    try:
        with show_progress(bars.update), bars.region:
            yield
    finally:
        bars.close()


class _Bars:
    """One bar for each step that takes long; the bar of an ended step scrolls up."""

    def __init__(self) -> None:
        self.region = LiveRegion(sys.stderr)
        self._lock = threading.Lock()
        self._steps: list[Step] = []
        self._drawn_at = 0.0
        self._is_closed = False

    def update(self, step: Step) -> None:
        """Show the current state of a step."""
        with self._lock:
            now = time.monotonic()
            if self._is_closed:
                return  # After an interrupt, other threads may still report for a moment.
            if step not in self._steps:
                if step.has_ended or now - step.began < _DELAY:
                    return
                self._steps.append(step)
            ended = ""
            if step.has_ended:
                self._steps.remove(step)
                ended = f"{_line(step)}\n"
            elif now - self._drawn_at < _DRAW_SECONDS:
                return
            self._drawn_at = now
            self.region.draw(ended, [_line(one) for one in self._steps])

    def close(self) -> None:
        """Stop drawing; the bars stay on the screen, and the cursor is below them."""
        with self._lock:
            self._is_closed = True


def amount(step: Step) -> str:
    """Return the progress of a step as a text, such as "12.0 MB of 52.0 MB"."""
    done, total = step.done, step.total
    if step.unit == "files":
        return f"{done} files" if total is None else f"{done} of {total} files"
    return format_bytes(done) + ("" if total is None else f" of {format_bytes(total)}")


def _line(step: Step) -> str:
    from torchx_specs.redaction import masked_text

    name = escape_controls(masked_text(step.name))
    if len(name) > _NAME_WIDTH:
        name = f"{name[: _NAME_WIDTH - 1]}…"
    bar = ""
    if step.total:
        filled = min(_BAR_WIDTH, _BAR_WIDTH * step.done // step.total)
        bar = f" {'━' * filled:{_BAR_WIDTH}}"
    return f"{name}{bar} {amount(step)}"
