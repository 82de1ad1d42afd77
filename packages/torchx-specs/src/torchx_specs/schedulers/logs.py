"""The logs of a scheduler's apps: which lines to read, and the interface that reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from torchx_specs.schedulers.features import Ability, S
from torchx_specs.schedulers.log_items import Block, PartialLine, Replica, Stream

if TYPE_CHECKING:
    from datetime import datetime


class LogQuery(NamedTuple):
    """Which lines of a log to read.

    Args:
        regex: Only lines in which this regular expression is found.
        since: Only lines written at this time or later; a time without a zone is local time.
        until: Only lines written before this time; a time without a zone is local time.
        should_tail: Whether to follow the log until the replica has ended.
        streams: Standard output, standard error or both; None means the scheduler's default.
        last: Only the last lines, at most this many; when following, also the lines that are added
            later. The lines are counted before ``regex`` is applied.
        partial: When following without ``regex``, also text that the replica has written without a
            newline, about 0.2 seconds after it was written, as a
            :class:`~torchx_specs.schedulers.log_items.PartialLine`.
        attempts: Without ``regex``, also a line ``--- attempt 2 ---`` before the first line of a
            replica's second attempt, and so on, if the scheduler knows where an attempt begins.
    """

    regex: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    should_tail: bool = False
    streams: Stream | None = None
    last: int | None = None
    partial: bool = False
    attempts: bool = False


class Logs(Ability[S]):
    """Reads the logs of one scheduler's apps; a scheduler returns one as ``app_logs``.

    A subclass implements :meth:`read`.
    """

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica.

        Without ``query.partial``, each item is a whole line with its newline, which the last line
        may lack.

        Args:
            app_id: The app.
            role: The role.
            k: Index of the replica in its role.
            query: Which lines.
        """
        raise self.scheduler.features.error("logs", self.scheduler.backend)

    def read_many(
        self, app_id: str, replicas: Iterable[Replica], query: LogQuery
    ) -> Iterator[Block]:
        """Return an iterator over blocks of log lines of several replicas, as the lines arrive.

        The default calls :meth:`read` in one thread for each log.

        Args:
            app_id: The app.
            replicas: The replicas. The next one is taken when a log can be read. The default
                follows at most :data:`~torchx_specs.schedulers.log_items.MAX_FOLLOWED` at once.
            query: Which lines.

        Returns:
            Pairs of a replica, and either lines of its log or the error that ended its log. The
            lines of one replica come in order; the lines of different replicas are interleaved.
        """
        from torchx_specs.schedulers.closing import closing_of
        from torchx_specs.schedulers.parallel_logs import read_in_threads

        closing = closing_of(self.scheduler)
        if query.should_tail:  # begin to follow no further logs after the scheduler was closed
            replicas = takewhile(lambda _: not closing.is_set(), replicas)

        def read(role: str, k: int) -> Iterable[str]:
            return self.read(app_id, role, k, query)

        return read_in_threads(read, replicas, query.should_tail)


def keep_last(
    read: Callable[[Iterable[Replica], bool], Iterator[Block]],
    replicas: Iterable[Replica],
    last: int,
    should_tail: bool,
) -> Iterator[Block]:
    """Yield the last lines of each log, and when following, the lines that are added after them.

    This function reads each log from its beginning; when following, twice. Prefer a reader that
    starts near the end of the log. The second argument of ``read`` is whether to follow the logs.
    """
    kept: dict[Replica, deque[str]] = {replica: deque(maxlen=last) for replica in replicas}
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


def _skip_lines(block: Iterable[str], replica: Replica, skip: dict[Replica, int]) -> Iterator[str]:
    """Yield a block without the lines still to skip; ``skip[replica]`` counts them down to 0."""
    for item in block:
        if not skip[replica]:
            yield item
        elif not isinstance(item, PartialLine):
            skip[replica] -= 1
