"""Logs of replicas, as files on the file system of the cluster."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from torchx_kit.hosts.api import Host
from torchx_kit.logs.lines import compile_regex
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.closing import Closing, closing_of

if TYPE_CHECKING:
    from datetime import datetime


def warn_if_limited_by_time(scheduler: str, since: datetime | None, until: datetime | None) -> None:
    """Warn if ``since`` or ``until`` is given: the scheduler knows no times of log lines.

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


@dataclass(frozen=True)
class ReplicaLog:
    """The log of a replica: the files ``<base>.out`` and ``<base>.err`` on the job's file system.

    Attributes:
        host: The machine with the file system of the job.
        base: Path of the files, without their suffixes.
        is_running: Whether the job exists and has not ended.
        is_finished: Returns True once the job has ended.
        watch: Files whose change may mean that the job has ended.
        missing_hint: Called if the job has ended without a log. Returns more details for the error
            message, or an empty string.
    """

    host: Host
    base: str
    is_running: bool
    is_finished: Callable[[], bool]
    watch: Sequence[str] = ()
    missing_hint: Callable[[], str] = str


class FileLogsMixin(ABC):
    """The method ``log_iter`` for schedulers whose jobs write each standard stream to a file.

    Put the mixin before ``Scheduler`` in the list of base classes.
    """

    backend: str
    repeats_log_order: ClassVar[bool] = False

    @abstractmethod
    def _replica_log(self, app_id: str, role_name: str, k: int) -> ReplicaLog:
        """Return the log of a replica.

        Args:
            app_id: The app's id.
            role_name: The role's name.
            k: Index of the replica.

        Raises:
            BackendError: The app does not exist.
            UnknownReplicaError: The app has no such role or replica.
        """

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        *,
        last: int | None = None,
        partial: bool = False,
    ) -> Iterable[str]:
        """Return the log lines of one replica, by default of both streams.

        ``since`` and ``until`` are ignored with a warning, because log lines have no timestamps.
        Of the lines that already exist, all lines of standard output come first.

        Raises:
            BackendError: The app does not exist, or the app has ended and the log file is missing.
                While reading: a file cannot be read.
            UnknownReplicaError: The app has no such role or replica.
            RequestError: ``regex`` is not a regular expression.
        """
        closing = closing_of(self)
        warn_if_limited_by_time(self.backend, since, until)
        return replica_log(
            self._replica_log(app_id, role_name, k),
            streams,
            regex,
            follow=should_tail,
            last=last,
            partial=partial,
            closing=closing,
        )


def log_files(bases: Iterable[str]) -> list[str]:
    """Return the paths of the log files of replicas.

    Args:
        bases: The paths of the replicas' logs, without suffixes.
    """
    from torchx_kit.logs.file_logs import stream_files

    return [path for base in bases for path in stream_files(base, Stream.COMBINED)]


def replica_log(
    log: ReplicaLog,
    streams: Stream | None,
    regex: str | None,
    *,
    follow: bool,
    last: int | None = None,
    partial: bool = False,
    closing: Closing | None = None,
) -> Iterable[str]:
    """Return the lines of the log of a replica.

    Lines that exist already are returned file by file, standard output first; followed lines are
    merged as they are written.

    Args:
        log: The log.
        streams: The streams whose lines to return; None for both.
        regex: Return only lines in which this expression is found; None for all lines.
        follow: Whether to follow the log while the job runs.
        last: How many of the lines that exist already to read, counted from the end; None for all.
            ``regex`` then selects some of them.
        partial: When following without ``regex``, also return text that was written without a
            newline, as a :class:`~torchx_specs.schedulers.log_items.PartialLine`.
        closing: Ends a followed log when the scheduler is closed.

    Raises:
        BackendError: The job has ended and there is no log. While reading: a file cannot be read.
        RequestError: ``regex`` is not a regular expression.
    """
    # Imported here, so that start-up does not load these modules.
    from torchx_kit.logs.file_logs import stream_files
    from torchx_kit.logs.lines import filter_regex

    if regex is not None:
        compile_regex(regex)
    host = log.host
    paths = stream_files(log.base, streams or Stream.COMBINED)
    lines: Iterable[str]
    if follow and log.is_running:
        partial = partial and regex is None
        lines = host.follow(
            paths, log.is_finished, watch=log.watch, last=last, partial=partial, closing=closing
        )
    else:
        present = [path for path in paths if host.exists(path)]
        if not present and not log.is_running:
            hint = log.missing_hint()
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
    """Yield the last lines of several files, as if the files were joined to one file."""
    found: list[list[str]] = []
    for path in reversed(paths):
        if last <= 0:
            break
        found.append(list(host.read_lines(path, last)))
        last -= len(found[-1])
    for lines in reversed(found):
        yield from lines
