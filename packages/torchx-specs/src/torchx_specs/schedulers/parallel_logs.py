"""Reads the logs of several replicas at once, each in a thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from torchx_specs.schedulers.log_items import MAX_FOLLOWED, Replica

#: How many logs are read at the same time, without following them.
MAX_READ = 8
#: Maximum number of lines in a block of a log that is not followed.
BLOCK_LINES = 512
# The threads pause while this many lines wait for the consumer.
_MAX_WAITING = 8192
# The longest wait that a signal cannot interrupt, in seconds.
_SIGNAL_SECONDS = 0.5

logger = logging.getLogger(__name__)

# A replica with lines or the error of its log; None at the end of a thread.
_Queue = queue.Queue["tuple[Replica, list[str] | Exception] | None"]


def read_in_threads(
    read: Callable[[str, int], Iterable[str]],
    replicas: Iterable[Replica],
    should_tail: bool = False,
) -> Iterator[tuple[Replica, Iterable[str] | Exception]]:
    """Read each log in a thread, and yield blocks of lines as ``Logs.read_many`` does.

    With ``should_tail``, each line is yielded without delay.
    """
    rest = iter(replicas)
    lock = threading.Lock()
    closed = threading.Event()
    size = 1 if should_tail else BLOCK_LINES
    found: _Queue = queue.Queue(_MAX_WAITING // size)

    def take() -> Replica | None:
        with lock:
            return None if closed.is_set() else next(rest, None)

    def lines(replica: Replica) -> Iterator[str]:
        yield from read(*replica)  # read() may raise an error, too

    def read_logs(replica: Replica | None) -> None:
        # Each thread reads one log to its end, and then takes the next replica.
        try:
            while replica is not None:
                for block in line_blocks(lines(replica), size):
                    found.put((replica, block))
                    if closed.is_set():
                        return
                replica = take()
        finally:
            found.put(None)

    running = 0
    most = MAX_FOLLOWED if should_tail else MAX_READ
    try:
        replica = take()
        while replica is not None and running < most:
            running += 1
            name = f"log-{replica[0]}"
            threading.Thread(target=read_logs, args=(replica,), name=name, daemon=True).start()
            replica = take()
        if replica is not None:
            rest = chain([replica], rest)
            if should_tail:
                logger.warning(
                    "following %d replicas at once; the others follow as those end", most
                )
        while running:
            ended, blocks = _waiting_blocks(found)
            running -= ended
            yield from blocks
    finally:
        closed.set()
        while not found.empty():  # a thread that waits for room continues, and ends
            found.get_nowait()


def line_blocks(lines: Iterable[str], size: int = BLOCK_LINES) -> Iterator[list[str] | Exception]:
    """Yield lines in blocks of at most ``size``, and last the error that ended them, if any."""
    rest = iter(lines)
    error: Exception | None = None
    while error is None:
        block: list[str] = []
        try:
            block.extend(islice(rest, size))  # extend() keeps the lines that were read before
        except Exception as e:
            error = e
        if block:
            yield block
        elif error is None:
            return
    yield error


def _waiting_blocks(found: _Queue) -> tuple[int, list[tuple[Replica, list[str] | Exception]]]:
    """Wait for an item; return the number of ended threads, and the blocks that wait.

    Lines of one replica that follow each other become one block.
    """
    ended = 0
    blocks: list[tuple[Replica, list[str] | Exception]] = []
    last: tuple[Replica, list[str] | Exception] | tuple[None, None] = (None, None)
    try:
        item = found.get(timeout=_SIGNAL_SECONDS)
        while True:
            if item is None:
                ended += 1
            elif last[0] == item[0] and isinstance(last[1], list) and isinstance(item[1], list):
                last[1].extend(item[1])
            else:
                blocks.append(item)
                last = item
            item = found.get_nowait()
    except queue.Empty:
        return ended, blocks
