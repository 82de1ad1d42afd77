"""Logs of replicas, as files on the file system of the cluster."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from torchx_kit.hosts.api import Host
from torchx_kit.logs.file_logs import stream_files
from torchx_kit.logs.lines import filter_regex
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.api import Stream, compile_regex

if TYPE_CHECKING:
    from datetime import datetime


def warn_if_limited_by_time(scheduler: str, since: datetime | None, until: datetime | None) -> None:
    """Warn that a scheduler without times of log lines ignores ``since`` and ``until``.

    Args:
        scheduler: Name of the scheduler.
        since: Start of the requested period; None for no limit.
        until: End of the requested period; None for no limit.
    """
    if since is not None or until is not None:
        warnings.warn(
            f"{scheduler} does not record the times of log lines: since and until are ignored",
            stacklevel=3,
        )


def replica_log(
    host: Host,
    base: str,
    streams: Stream | None,
    regex: str | None,
    *,
    follow: bool,
    is_running: bool,
    is_finished: Callable[[], bool],
    watch: Sequence[str],
    missing_hint: Callable[[], str],
    last: int | None = None,
    partial: bool = False,
) -> Iterable[str]:
    """Return the lines of the log files ``<base>.out`` and ``<base>.err`` of a replica.

    Lines that exist already are returned file by file, standard output first; followed lines are
    merged as they are written.

    Args:
        host: The machine with the file system of the job.
        base: Path of the files, without their suffixes.
        streams: The streams whose lines to return; None for both.
        regex: Return only lines in which this expression is found; None for all lines.
        follow: Whether to follow the log while the job runs.
        is_running: Whether the job exists and has not ended.
        is_finished: Returns True once the job has ended.
        watch: Files whose change may mean that the job has ended.
        missing_hint: Called if the job has ended without a log. Returns more details for the error
            message, or an empty string.
        last: Of the lines that exist already, return only the last ones, at most this many. They
            are counted before ``regex`` is applied.
        partial: When following without ``regex``, also return text that was written without a
            newline, as a :class:`~torchx_specs.schedulers.log_items.PartialLine`.

    Raises:
        BackendError: The job has ended and there is no log; or (while reading) a file cannot be
            read.
        RequestError: ``regex`` is not a regular expression.
    """
    if regex is not None:
        compile_regex(regex)
    paths = stream_files(base, streams or Stream.COMBINED)
    lines: Iterable[str]
    if follow and is_running:
        partial = partial and regex is None
        lines = host.follow(paths, is_finished, watch=watch, last=last, partial=partial)
    else:
        present = [path for path in paths if host.exists(path)]
        if not present and not is_running:
            hint = missing_hint()
            raise BackendError(
                f"no log at {paths[0]}: it was removed, or the replica never started"
                + (f"; {hint}" if hint else "")
            )
        if last is None:
            lines = chain.from_iterable(map(host.read_lines, present))
        else:
            lines = _last_lines(host, present, last)
    return lines if regex is None else filter_regex(regex, lines)


def _last_lines(host: Host, paths: list[str], last: int) -> Iterator[str]:
    """Yield the last lines of several files, as if the files were one after the other."""
    found: list[list[str]] = []
    for path in reversed(paths):
        if last <= 0:
            break
        found.append(list(host.read_lines(path, last)))
        last -= len(found[-1])
    for lines in reversed(found):
        yield from lines
