"""Shows unfinished lines of replicas: text without a newline, such as a progress bar."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_cli.output.terminal_safety import safe_log_lines
from torchx_specs.schedulers.log_items import PartialLine

Replica = tuple[str, int]

_MOST_HELD_CHARS = 1 << 16


@dataclass
class _OpenLine:
    """A line that has no newline yet.

    Attributes:
        prefix: Text in front of each line of the replica.
        text: The text of the line after its last carriage return.
        shown: The text that was last shown as a line of its own.
    """

    prefix: str
    text: str = ""
    shown: str = ""


class OpenLines:
    r"""The unfinished lines of several replicas.

    A line is shown once it has ended or is very long. Until then, :meth:`states` returns its text
    for the live region of a terminal, and :meth:`updates` for a stream that cannot replace text.

    Args:
        safe: Whether the text is for a terminal, so that control characters are escaped.
        live: Whether the text is for a live region: a line is shown in its last state only.
    """

    def __init__(self, safe: bool, live: bool = False) -> None:
        self._safe = safe
        self._live = live
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
        is_piece = isinstance(item, PartialLine)
        if not is_piece and replica not in self._lines:
            return self._whole(prefix, last_state(item) if self._live else item)
        line = self._lines.setdefault(replica, _OpenLine(prefix))
        line.text = last_state(line.text + item)
        if is_piece and len(line.text) <= _MOST_HELD_CHARS:
            return ""
        if not is_piece:
            del self._lines[replica]
        shown, line.text = self._show(line), ""
        return shown

    def updates(self) -> str:
        """Return the present text of each line that has changed, as a line of its own."""
        return "".join(map(self._show, self._lines.values()))

    def end(self) -> str:
        """End all lines, and return their text that was not shown yet."""
        lines, self._lines = self._lines, {}
        return "".join(map(self._show, lines.values()))

    def states(self) -> list[str]:
        """Return the present text of each line, in the order of the replicas."""
        return [line.prefix + line.text for _, line in sorted(self._lines.items()) if line.text]

    def _show(self, line: _OpenLine) -> str:
        before, line.shown = line.shown, line.text
        return "" if line.text in ("", before) else self._whole(line.prefix, line.text)

    def _whole(self, prefix: str, text: str) -> str:
        text = text.removesuffix("\n") + "\n"
        if self._safe:
            (text,) = safe_log_lines([text])
        return prefix_line(prefix, text)


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
