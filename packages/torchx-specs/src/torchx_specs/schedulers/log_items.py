"""The items of a log: pieces of lines, and the last lines of logs that cannot be read backwards."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

_Key = TypeVar("_Key")


class PartialLine(str):
    r"""A piece of a line whose end was not yet written.

    The next item of the same replica continues the line. An item that is not a ``PartialLine`` is
    the rest of the line and ends it; the rest may be empty. So the items of a log together contain
    each character once. A piece does not end within a character or an escape sequence, and does not
    end with ``\r``.
    """

    __slots__ = ()


def accepts_parameter(function: Callable[..., Any], name: str) -> bool:
    """Return True if a function has a parameter of that name; ``**kwargs`` does not count.

    A function with ``**kwargs`` may ignore the argument, or pass it to a function that refuses it.
    """
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


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
    """Yield the items of a block after the first ``skip[replica]`` lines, and count these down."""
    for item in block:
        if not skip[replica]:
            yield item
        elif not isinstance(item, PartialLine):
            skip[replica] -= 1
