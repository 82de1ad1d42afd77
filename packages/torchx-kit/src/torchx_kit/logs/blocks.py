"""Read the log files of many replicas in one thread, for ``Scheduler.log_blocks``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from torchx_kit.logs.file_logs import FileLog, follow_all
from torchx_specs.schedulers.parallel_logs import line_blocks

Key = TypeVar("Key")


def file_log_blocks(
    logs: Iterable[tuple[Key, FileLog | Exception]], *, should_tail: bool
) -> Iterator[tuple[Key, Iterable[str] | Exception]]:
    """Yield blocks of lines of many log files, in the caller's thread.

    A followed log whose ``Tail.partial`` is True also yields pieces of lines. The caller's thread
    also calls each log's ``Tail.is_finished``; a slow call delays every log.

    Args:
        logs: Pairs of a key and its log, or of a key and the error that prevents reading the log.
            Each pair is taken from the iterable only when its log is about to be read. Several
            logs may have the same key.
        should_tail: If True, follow all logs. If False, read one log after the other.

    Yields:
        A key, with lines of its log or the error that ended its log. The lines of one log come in
        order.
    """
    return follow_all(logs) if should_tail else _read_all(logs)


def _read_all(
    logs: Iterable[tuple[Key, FileLog | Exception]],
) -> Iterator[tuple[Key, Iterable[str] | Exception]]:
    for key, log in logs:
        if isinstance(log, Exception):
            yield key, log
        else:
            yield from ((key, block) for block in line_blocks(log))
