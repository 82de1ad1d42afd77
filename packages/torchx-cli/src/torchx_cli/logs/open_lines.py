"""Shows unfinished lines of replicas: text without a newline, such as a progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torchx_cli.output.terminal_safety import safe_log_lines
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
    """

    prefix: str
    held: str = ""
    shown_at: float | None = None


class OpenLines:
    r"""The unfinished lines of several replicas, for a stream that cannot replace text.

    The text after the last ``\r`` is shown as a line of its own, at most once in
    :data:`UPDATE_SECONDS` for each replica unless the line ends or is very long.

    Args:
        safe: Whether the text is for a terminal, so that control characters are escaped.
        clock: Returns the time in seconds.
    """

    def __init__(self, safe: bool, clock: Callable[[], float] = time.monotonic) -> None:
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
        line, is_end = self._add(replica, prefix, item)
        if is_end and line.shown_at is None:
            return self._whole(line.prefix, line.held)
        is_due = line.shown_at is None or self._clock() >= line.shown_at + UPDATE_SECONDS
        if is_end or is_due or len(line.held) > _MOST_HELD_CHARS:
            line.shown_at = self._clock()
            return self._show(line)
        return ""

    def show_due(self) -> str:
        """Return the text that was held back long enough."""
        now = self._clock()
        text = ""
        for line in self._lines.values():
            if line.held and line.shown_at is not None and now >= line.shown_at + UPDATE_SECONDS:
                line.shown_at = now
                text += self._show(line)
        return text

    def end(self) -> str:
        """End all lines, and return the text that was held back."""
        lines, self._lines = self._lines, {}
        return "".join(self._show(line) for line in lines.values())

    def states(self) -> list[str]:
        """Return the present text of each line, in the order of the replicas."""
        return [line.prefix + line.held for _, line in sorted(self._lines.items()) if line.held]

    def _add(self, replica: Replica, prefix: str, item: str) -> tuple[_OpenLine, bool]:
        """Add an item, and return its line and whether the line has ended."""
        line = self._lines.get(replica)
        if line is None:
            line = self._lines[replica] = _OpenLine(prefix)
        line.held += item
        is_end = not isinstance(item, PartialLine)
        if is_end:
            del self._lines[replica]
        return line, is_end

    def _show(self, line: _OpenLine) -> str:
        """Return the text after the last carriage return of a line, as a line of its own."""
        text, line.held = last_state(line.held), ""
        return self._whole(line.prefix, text) if text else ""

    def _whole(self, prefix: str, text: str) -> str:
        text = text.removesuffix("\n") + "\n"
        if self._safe:
            (text,) = safe_log_lines([text])
        return prefix_line(prefix, text)


class LiveLines(OpenLines):
    """The unfinished lines of several replicas, for the live region of a terminal.

    A line is shown above the region once it has ended or is very long.
    """

    def __init__(self) -> None:
        super().__init__(safe=True)

    def add(self, replica: Replica, prefix: str, item: str) -> str:
        """Return the text to show above the region; see :meth:`OpenLines.add`."""
        line, is_end = self._add(replica, prefix, item)
        line.held = last_state(line.held)
        return self._show(line) if is_end or len(line.held) > _MOST_HELD_CHARS else ""


def last_state(text: str) -> str:
    r"""Return the text after the last ``\r`` of a line, without the line's end.

    >>> last_state("\r10%\r20%\n")
    '20%'
    """
    return text.rstrip("\r\n").rpartition("\r")[2]


def prefix_line(prefix: str, line: str) -> str:
    r"""Return a line with ``prefix`` in front, and after each ``\r`` and ``\n`` within the line."""
    head = line[:1] if line[:1] == "\r" else ""
    text, end = line[len(head) :], ""
    if text.endswith("\n"):
        text, end = text[:-1], "\n"
    if "\r" in text or "\n" in text:
        text = text.replace("\r", f"\r{prefix}").replace("\n", f"\n{prefix}")
    return f"{head}{prefix}{text}{end}"
