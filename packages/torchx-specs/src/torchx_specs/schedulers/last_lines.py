"""Finds the last lines of logs that can only be read from their beginning."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from torchx_specs.schedulers.log_items import PartialLine

_Key = TypeVar("_Key")


def keep_last(
    read: Callable[[Iterable[_Key], bool], Iterator[tuple[_Key, Iterable[str] | Exception]]],
    replicas: Iterable[_Key],
    last: int,
    should_tail: bool,
) -> Iterator[tuple[_Key, Iterable[str] | Exception]]:
    """Yield the last lines of each log, and when following, the lines that are added after them.

    This function reads each log from its beginning; when following, twice. Prefer a reader that
    starts near the end of the log. The second argument of ``read`` is whether to follow the logs.
    """
    kept: dict[_Key, deque[str]] = {replica: deque(maxlen=last) for replica in replicas}
    counts = dict.fromkeys(kept, 0)
    for replica, block in read(list(kept), False):
        if isinstance(block, Exception):
            kept.pop(replica, None)
            yield replica, block
            continue
        for line in block:
            kept[replica].append(line)
            counts[replica] += 1
    if not should_tail:
        yield from kept.items()
        return
    # Follow the logs, and skip the lines before the kept ones. The kept lines are read again,
    # because the last one may have been incomplete.
    skip = {replica: counts[replica] - len(lines) for replica, lines in kept.items()}
    for replica, block in read(list(kept), True):
        if isinstance(block, Exception) or not skip[replica]:
            yield replica, block
        else:
            yield replica, _skip_lines(block, replica, skip)


def _skip_lines(block: Iterable[str], replica: _Key, skip: dict[_Key, int]) -> Iterator[str]:
    """Yield a block without the lines still to skip; ``skip[replica]`` counts them down to 0."""
    for item in block:
        if not skip[replica]:
            yield item
        elif not isinstance(item, PartialLine):
            skip[replica] -= 1
