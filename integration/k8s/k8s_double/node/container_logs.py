"""The log of a container: stored as by containerd or CRI-O, and sent as by a kubelet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import NamedTuple

#: The length after which containerd splits a line, in bytes.
LINE_LIMIT = 16 * 1024


class Entry(NamedTuple):
    """A line or a part of a long line; only the last part of a line has the newline."""

    stamp: int
    stream: str
    text: bytes

    @property
    def whole(self) -> bool:
        return self.text.endswith(b"\n")


class ContainerLog:
    """The output of one run of a container.

    Args:
        resolution: Resolution of the clock, in nanoseconds; a coarse clock gives many lines the
            same time.
        at_once: Whether text is stored before its newline, as by CRI-O.
    """

    def __init__(self, resolution: int = 1, at_once: bool = False) -> None:
        self.entries: list[Entry] = []
        self.closed = False
        self._resolution = resolution
        self._at_once = at_once
        self._rest = {"stdout": b"", "stderr": b""}
        self._more = threading.Condition()

    def add(self, stream: str, data: bytes) -> None:
        """Add output that was read from a container's pipe."""
        lines = (self._rest[stream] + data).split(b"\n")
        found: list[Entry] = []
        for line in lines[:-1]:
            found += self._parts(stream, line + b"\n")
        rest = lines[-1]
        while len(rest) > LINE_LIMIT:
            found.append(Entry(self._now(), stream, rest[:LINE_LIMIT]))
            rest = rest[LINE_LIMIT:]
        if rest and self._at_once:
            found.append(Entry(self._now(), stream, rest))
            rest = b""
        self._rest[stream] = rest
        self._append(found)

    def close(self) -> None:
        """End the log, because the container has ended."""
        rests = [(s, rest) for s, rest in self._rest.items() if rest]
        self._append([Entry(self._now(), stream, rest) for stream, rest in rests])
        with self._more:
            self.closed = True
            self._more.notify_all()

    def tail(self, lines: int, size: int) -> str:
        """Return the last lines as text, limited in lines and bytes."""
        with self._more:
            texts = [entry.text for entry in self.entries]
            found = b"".join([*texts, *self._rest.values()])
        return b"".join(found.splitlines(True)[-lines:])[-size:].decode("utf-8", "replace")

    def wake(self) -> None:
        """Wake the readers, so that they check whether they should stop."""
        with self._more:
            self._more.notify_all()

    def _parts(self, stream: str, line: bytes) -> list[Entry]:
        found = []
        while len(line) > LINE_LIMIT + 1:
            found.append(Entry(self._now(), stream, line[:LINE_LIMIT]))
            line = line[LINE_LIMIT:]
        found.append(Entry(self._now(), stream, line))
        return found

    def _now(self) -> int:
        stamp = time.time_ns()
        return stamp - stamp % self._resolution

    def _append(self, found: list[Entry]) -> None:
        if found:
            with self._more:
                self.entries += found
                self._more.notify_all()

    def read(
        self,
        *,
        since: int = 0,
        tail: int | None = None,
        timestamps: bool = False,
        follow: bool = False,
        limit: int | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Iterator[bytes]:
        """Yield the log as the kubelet sends it.

        Args:
            since: Leave out entries before this time, in nanoseconds since 1970.
            tail: Start this many entries before the end; None starts at the first entry.
            timestamps: Whether each line begins with its time.
            follow: Whether to wait for more entries until the container has ended.
            limit: The largest number of bytes to send; None means no limit.
            wanted: Returns whether the reader is still connected.
        """
        with self._more:
            at = 0 if tail is None else max(0, len(self.entries) - tail)
        begun, sent = True, 0
        while True:
            with self._more:
                entries, closed = self.entries[at : at + 1000], self.closed
                if not entries and follow and not closed and wanted():
                    self._more.wait(1)
                    continue
            chunk = b""
            for entry in entries:
                at += 1
                if entry.stamp >= since:
                    if timestamps and begun:
                        chunk += timestamp(entry.stamp) + b" "
                    chunk += entry.text
                begun = entry.whole
            if limit is not None:
                chunk = chunk[: limit - sent]
            sent += len(chunk)
            if chunk:
                yield chunk
            if not entries or not wanted() or (limit is not None and sent >= limit):
                return


def timestamp(stamp: int) -> bytes:
    """Return a time as the kubelet writes it."""
    seconds, fraction = divmod(stamp, 1_000_000_000)
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z".encode()
