"""Reading the log files of many replicas in one thread, for ``Scheduler.log_blocks``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from torchx_kit.logs.file_logs import FileLog, follow_all
from torchx_specs.schedulers.parallel_logs import MAX_FOLLOWED

Key = TypeVar("Key")

# How many lines of one log are handed over together when the log is not followed.
_BLOCK_LINES = 512


def file_log_blocks(
    logs: Iterable[tuple[Key, FileLog | Exception]], *, should_tail: bool
) -> Iterator[tuple[Key, Iterable[str] | Exception]]:
    """Yield blocks of whole lines of many log files, without a thread for each file.

    If the logs are followed, their ``Tail.is_finished`` is called by this one thread: a slow answer
    delays the lines of all logs.

    Args:
        logs: The logs, each with a key, or the error why there is no log for that key. They are
            taken one by one, as there is room for them. One key may have several logs.
        should_tail: Whether the logs are followed, at most
            :data:`~torchx_specs.schedulers.parallel_logs.MAX_FOLLOWED` at once, or read one after
            the other.

    Yields:
        A key, and lines of its log or the error that ended its log. The lines of one log come in
        order.
    """
    return follow_all(logs, MAX_FOLLOWED) if should_tail else _read_all(logs)


def _read_all(
    logs: Iterable[tuple[Key, FileLog | Exception]],
) -> Iterator[tuple[Key, Iterable[str] | Exception]]:
    for key, log in logs:
        if isinstance(log, Exception):
            yield key, log
            continue
        lines = iter(log)
        while True:
            block: list[str] | Exception
            try:
                block = list(islice(lines, _BLOCK_LINES))
            except Exception as e:  # the consumer decides what an unreadable log means
                block = e
            if block:
                yield key, block
            if not block or isinstance(block, Exception):
                break
