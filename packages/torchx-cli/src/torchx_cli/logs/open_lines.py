"""Shows unfinished lines of replicas: text without a newline, such as a progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torchx_cli.output.terminal_safety import safe_log_lines, safe_piece
from torchx_specs.schedulers.log_items import PartialLine

Replica = tuple[str, int]

#: The shortest time between two updates of an unfinished line that is not updated in place.
UPDATE_SECONDS = 1.0
_MOST_HELD_CHARS = 1 << 16


@dataclass
class _OpenLine:
    """A line that has no newline yet.

    Attributes:
        prefix: Text in front of each line of the replica.
        held: The part of the line that was not shown.
        shown_at: When text of the line was last shown (:func:`time.monotonic`); None if no text of
            the line was shown.
        colors: The colour sequences that are in effect at the end of the line.
    """

    prefix: str
    held: str = ""
    shown_at: float | None = None
    colors: str = ""


class OpenLines:
    r"""The unfinished lines of several replicas.

    With ``in_place``, text is shown when it arrives, and ``\r`` updates the line on the terminal.
    Otherwise the text after the last ``\r`` is shown as a line of its own, at most once in
    :data:`UPDATE_SECONDS` for each replica unless the line ends or is very long.

    Args:
        in_place: Whether to update lines in place.
        safe: Whether the text is for a terminal, so that control characters are escaped.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, in_place: bool, safe: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._in_place = in_place
        self._safe = safe
        self._clock = clock
        self._lines: dict[Replica, _OpenLine] = {}

    def __contains__(self, replica: Replica) -> bool:
        return replica in self._lines

    def add(self, replica: Replica, prefix: str, item: str) -> str:
        """Return the text to show for the next item of a replica's log.

        Args:
            replica: Role and index of the replica.
            prefix: Text in front of each line of the replica.
            item: A piece of a line (:class:`PartialLine`), a whole line, or the rest of a line that
                follows its pieces.
        """
        line = self._lines.setdefault(replica, _OpenLine(prefix))
        is_end = not isinstance(item, PartialLine)
        if is_end:
            del self._lines[replica]
        if self._in_place:
            return self._update(line, item, is_end)
        line.held += item
        if is_end and line.shown_at is None:
            return self._whole(line.prefix, line.held)
        is_due = line.shown_at is None or self._clock() >= line.shown_at + UPDATE_SECONDS
        if is_end or is_due or len(line.held) > _MOST_HELD_CHARS:
            return self._show(line)
        return ""

    def due(self) -> float | None:
        """Return when held text is to be shown (:func:`time.monotonic`); None if there is none."""
        times = [line.shown_at for line in self._lines.values() if line.held]
        return min((at + UPDATE_SECONDS for at in times if at is not None), default=None)

    def show_due(self) -> str:
        """Return the text that was held back long enough."""
        now = self._clock()
        return "".join(
            self._show(line)
            for line in self._lines.values()
            if line.held and line.shown_at is not None and now >= line.shown_at + UPDATE_SECONDS
        )

    def end(self) -> str:
        """End all lines, and return the text to show.

        With ``in_place``, no text is held back, and a newline ends the line on the terminal.
        """
        lines, self._lines = self._lines, {}
        if self._in_place:
            return "\n" if lines else ""
        return "".join(self._show(line) for line in lines.values())

    def _update(self, line: _OpenLine, item: str, is_end: bool) -> str:
        body = item.removesuffix("\n") if is_end else item
        if self._safe:
            body, line.colors = safe_piece(body, line.colors)
        if line.shown_at is None:
            head = "\r" if body[:1] == "\r" else ""
            body = head + line.prefix + body[len(head) :].replace("\r", f"\r{line.prefix}")
        else:
            body = body.replace("\r", f"\r{line.prefix}")
        line.shown_at = self._clock()
        return body + "\n" if is_end else body

    def _show(self, line: _OpenLine) -> str:
        """Return the text after the last carriage return of a line, as a line of its own."""
        updates = [text for text in line.held.rstrip("\r\n").split("\r") if text]
        line.held = ""
        line.shown_at = self._clock()
        return self._whole(line.prefix, updates[-1]) if updates else ""

    def _whole(self, prefix: str, text: str) -> str:
        text = text.removesuffix("\n") + "\n"
        if self._safe:
            (text,) = safe_log_lines([text])
        return prefix_line(prefix, text)


def prefix_line(prefix: str, line: str) -> str:
    r"""Return a line with ``prefix`` in front, and after each ``\r`` and ``\n`` within the line."""
    head = line[:1] if line[:1] == "\r" else ""
    text, end = line[len(head) :], ""
    if text.endswith("\n"):
        text, end = text[:-1], "\n"
    if "\r" in text or "\n" in text:
        text = text.replace("\r", f"\r{prefix}").replace("\n", f"\n{prefix}")
    return f"{head}{prefix}{text}{end}"
