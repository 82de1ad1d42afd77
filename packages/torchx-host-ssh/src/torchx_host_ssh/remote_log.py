"""Log files of the host: reading and following, also across a broken connection.

The client counts the bytes of each file that it got, and asks for what follows them. So a new
connection continues there: no line is lost, and none comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from torchx_host_ssh.channel import Channel
from torchx_kit.hosts.errors import HostUnreachableError
from torchx_kit.logs.file_logs import Tail, merged_blocks, missing_log
from torchx_kit.logs.log_file import PIECE_SECONDS, LogFile
from torchx_kit.retry import Backoff
from torchx_specs.schedulers.closing import ClosedError, Closing

# The most bytes of a file in one answer.
_BLOCK_BYTES = 1 << 20
# How long one request waits for news, in seconds; a closed scheduler is noticed after it.
_WAIT_SECONDS = 2.0
#: How long a host may be unreachable while its files are followed, in seconds.
FOLLOW_PATIENCE = 3600.0


class RemoteFile(LogFile):
    """The lines of a file whose bytes come from the host."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
        self.identity: Any = None
        self.received = 0
        self._fed = bytearray()

    def feed(self, news: Sequence[Any]) -> Iterator[Iterable[str]]:
        """Take the result of :func:`torchx_kit.hosts.agent.new_bytes`, and yield new lines."""
        begin, data, self.identity, is_new = news
        if is_new:
            yield from self.read_incomplete_line()
        self.received = begin + len(data)
        self._fed += data
        yield from self.read_lines(None)

    def _read(self, size: int) -> bytes:
        block = bytes(self._fed[:size])
        del self._fed[:size]
        return block


def read_remote(channel: Channel, path: str, last: int | None) -> Iterator[str]:
    """Yield the lines of a file; see :meth:`Host.read_lines`."""
    following = _Following(channel, [path], Tail(lambda: True), last, patience=0.0)
    yield from chain.from_iterable(block for _, block in following.blocks())
    if following.files[0].identity is None and not channel.request("exists", path):
        raise missing_log(path)


def follow_remote(
    channel: Channel, paths: Sequence[str], tail: Tail, last: int | None
) -> Iterator[str]:
    """Yield the lines of growing files; see :meth:`Host.follow`."""
    blocks = _Following(channel, paths, tail, last, FOLLOW_PATIENCE).blocks()
    if len(paths) == 1:
        return chain.from_iterable(block for _, block in blocks)
    return merged_blocks(blocks)


class _Following:
    """Reads several files of the host until they are finished.

    Args:
        channel: The channel to the host.
        paths: The files.
        tail: How to follow the files.
        last: Begin only this many lines before the end of the files, as if they were joined; None
            for all lines.
        patience: How long the host may be unreachable, in seconds.
    """

    def __init__(
        self,
        channel: Channel,
        paths: Sequence[str],
        tail: Tail,
        last: int | None,
        patience: float,
    ) -> None:
        self.files = [RemoteFile(path) for path in paths]
        self._channel = channel
        self._last = last
        self._tail = tail
        self._closing = tail.closing or Closing()
        self._backoff = Backoff(patience, sleep=self._closing.sleep)
        self._seen: list[list[int]] = []
        self._checked = -tail.check_every
        self._is_finished = False
        # When the pieces of an incomplete line are shown, by the index of the file.
        self._due: dict[int, float] = {}

    def blocks(self) -> Iterator[tuple[int, Iterable[str]]]:
        """Yield the index of a file, and lines of it."""
        while not self._closing.is_set():
            try:
                self._check_end()
                news, seen = self._changes()
                self._backoff.reset()
            except HostUnreachableError as e:
                try:
                    self._backoff.pause_after(e)
                except ClosedError:
                    return
                continue
            if seen != self._seen:
                self._seen, self._checked = seen, -self._tail.check_every
            for k, *new in news:
                for block in self.files[k].feed(new):
                    self._due.pop(k, None)
                    yield k, block
            if self._is_finished and not news:
                for k, file in enumerate(self.files):
                    yield from ((k, block) for block in file.read_incomplete_line())
                return
            if self._tail.partial:
                yield from self._pieces()

    def _changes(self) -> Any:
        """Return the news of the files; see :func:`torchx_kit.hosts.agent.changes`.

        Raises:
            HostError: A file cannot be read.
            HostUnreachableError: There is no connection.
        """
        if self._last is not None:
            paths = [file.path for file in self.files]
            begins = self._channel.request("last_lines", paths, self._last)
            for file, begin in zip(self.files, begins, strict=True):
                file.received = begin
            self._last = None
        known = [(file.path, file.received, file.identity) for file in self.files]
        watch, seconds = list(self._tail.watch), self._seconds()
        return self._channel.request("changes", known, watch, self._seen, seconds, _BLOCK_BYTES)

    def _check_end(self) -> None:
        """Query whether the files are finished, if this is due.

        The files are read afterwards, so that no line written before the end is missed.
        """
        now = time.monotonic()
        if not self._is_finished and now - self._checked >= self._tail.check_every:
            self._is_finished = self._tail.is_finished()
            self._checked = now

    def _seconds(self) -> float:
        """Return how long to wait for news."""
        if self._is_finished:
            return 0.0
        dues = [self._checked + self._tail.check_every, *self._due.values()]
        return min(max(0.0, min(dues) - time.monotonic()), _WAIT_SECONDS)

    def _pieces(self) -> Iterator[tuple[int, Iterable[str]]]:
        """Yield text without a newline that was held back for a while."""
        for k, file in enumerate(self.files):
            now = time.monotonic()
            if not file.has_piece():
                self._due.pop(k, None)
            elif now >= self._due.setdefault(k, now + PIECE_SECONDS):
                del self._due[k]
                yield k, [file.take_piece()]
