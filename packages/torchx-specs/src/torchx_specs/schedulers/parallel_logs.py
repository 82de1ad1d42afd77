"""Reads the logs of several replicas at once, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from torchx_specs.schedulers.log_items import MAX_FOLLOWED, Replica

#: How many logs are read at the same time, without following them.
MAX_READ = 8
# Maximum number of lines that a thread passes to the consumer at once.
_BLOCK_LINES = 512
# The threads pause while this many lines wait for the consumer.
_MAX_WAITING = 8192
# The longest wait that a signal cannot interrupt, in seconds.
_SIGNAL_SECONDS = 0.5


def read_in_threads(
    read: Callable[[str, int], Iterable[str]],
    replicas: Iterable[Replica],
    should_tail: bool = False,
) -> Iterator[tuple[Replica, Iterable[str] | Exception]]:
    """Read each log in a thread, and yield blocks of lines as ``Logs.read_many`` does.

    With ``should_tail``, each line is yielded without delay.
    """
    return _ThreadedReader(read, replicas, should_tail).blocks()


class _ThreadedReader:
    def __init__(
        self,
        read: Callable[[str, int], Iterable[str]],
        replicas: Iterable[Replica],
        should_tail: bool,
    ) -> None:
        self._read = read
        self._replicas = iter(replicas)
        self._most = MAX_FOLLOWED if should_tail else MAX_READ
        self._block_lines = 1 if should_tail else _BLOCK_LINES
        self._changed = threading.Condition()
        self._ready: list[tuple[Replica, list[str] | Exception]] = []
        self._waiting = 0
        self._running = 0
        self._closed = False

    def blocks(self) -> Iterator[tuple[Replica, Iterable[str] | Exception]]:
        try:
            self._start_threads()
            while True:
                with self._changed:
                    while not self._ready and self._running:
                        self._changed.wait(_SIGNAL_SECONDS)
                    found, self._ready = self._ready, []
                    self._waiting = 0
                    running = self._running
                    self._changed.notify_all()
                yield from found
                if not found and not running:
                    return
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()

    def _start_threads(self) -> None:
        # Each thread reads one log to its end, and then takes the next replica.
        for _ in range(self._most):
            replica = self._next()
            if replica is None:
                return
            with self._changed:
                self._running += 1
            threading.Thread(
                target=self._run, args=(replica,), name=f"log-{replica[0]}", daemon=True
            ).start()

    def _next(self) -> Replica | None:
        with self._changed:
            return None if self._closed else next(self._replicas, None)

    def _run(self, replica: Replica | None) -> None:
        try:
            while replica is not None:
                try:
                    self._copy(replica)
                except Exception as e:  # the consumer decides how to handle the error
                    self._put(replica, e)
                replica = self._next()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _copy(self, replica: Replica) -> None:
        block: list[str] = []
        try:
            for line in self._read(*replica):
                block.append(line)
                if len(block) >= self._block_lines:
                    if not self._put(replica, block):
                        return
                    block = []
        finally:  # pass the lines that were read before an error
            if block:
                self._put(replica, block)

    def _put(self, replica: Replica, found: list[str] | Exception) -> bool:
        """Pass lines or an error to the consumer; return False if the consumer has stopped."""
        with self._changed:
            while self._waiting >= _MAX_WAITING and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            last, block = self._ready[-1] if self._ready else (None, None)
            if last == replica and isinstance(block, list) and isinstance(found, list):
                block += found  # the consumer has not taken these lines yet
            else:
                self._ready.append((replica, found))
            self._waiting += len(found) if isinstance(found, list) else 1
            if len(self._ready) == 1:
                self._changed.notify_all()
            return True
