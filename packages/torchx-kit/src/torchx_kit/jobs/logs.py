"""Logs of replicas, as files on the file system of the cluster."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.jobs.records import JobRecord
from torchx_kit.logs.lines import compile_regex
from torchx_kit.role_checks import check_replica
from torchx_specs.errors import BackendError
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import DescribeAppResponse, Stream
from torchx_specs.schedulers.closing import Closing, closing_of
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from torchx_kit.batch.scheduler import BatchScheduler

#: Maximum age of a description that the followers of an app's logs share, in seconds.
MAX_AGE_SECONDS = 2.0

S = TypeVar("S", bound="BatchScheduler[Any]")


class FileLogs(Logs[S]):
    """Reads the logs of jobs that write each standard stream to a file.

    The scheduler keeps one object for all calls, because the followers of an app's logs share
    descriptions of the app.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: S) -> None:
        super().__init__(scheduler)
        self._descriptions: CoalescingCache[DescribeAppResponse] = CoalescingCache()

    def find(self, app_id: str, role: str, k: int) -> ReplicaLog:
        """Return the log of a replica; the default is for apps in the index.

        Raises:
            BackendError: The app does not exist.
            UnknownReplicaError: The app has no such role or replica.
        """
        is_running = self.is_running(app_id)
        host, entry = self.scheduler._host, self.scheduler._entry(app_id)
        if entry is None or not entry.folder:
            raise BackendError(
                f"app {app_id} was submitted with another TORCHX_HOME, so the directory of its logs"
                " is unknown; run this where the app was submitted"
            )
        check_replica(app_id, entry.replicas, role, k)
        index = list(entry.replicas).index(role)
        watch = [JobRecord(host, entry.record).replica_path(index, k)]
        return ReplicaLog(
            host, entry.log(index, k), is_running, lambda: self.has_ended(app_id), watch
        )

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica, by default of both streams.

        ``since`` and ``until`` are ignored with a warning, because log lines have no timestamps.

        Raises:
            BackendError: The app does not exist, or the app has ended and the log file is missing.
                While reading: a file cannot be read.
            UnknownReplicaError: The app has no such role or replica.
            RequestError: ``regex`` is not a regular expression.
        """
        closing = closing_of(self.scheduler)
        if query.since is not None or query.until is not None:
            warnings.warn(
                f"{self.scheduler.backend} does not record the times of log lines: since and until"
                " are ignored",
                stacklevel=2,
            )
        return self.find(app_id, role, k).read(query, closing)

    def described(
        self, app_id: str, max_age: float = MAX_AGE_SECONDS
    ) -> DescribeAppResponse | None:
        """Return a description of an app that is at most ``max_age`` seconds old."""
        return self._descriptions.get(app_id, lambda _: self.scheduler.describe(app_id), max_age)

    def is_running(self, app_id: str) -> bool:
        """Return True if an app has not ended, by :meth:`described`.

        Raises:
            BackendError: The app does not exist.
        """
        description = self.described(app_id)
        if description is None:
            raise BackendError(f"app {app_id} does not exist")
        return not is_terminal(description.state)

    def has_ended(self, app_id: str, max_age: float = MAX_AGE_SECONDS) -> bool:
        """Return True if an app has ended or does not exist, by :meth:`described`."""
        description = self.described(app_id, max_age)
        return description is None or is_terminal(description.state)


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

    def read(self, query: LogQuery, closing: Closing | None = None) -> Iterable[str]:
        """Return lines of the log; limits of time are ignored.

        Lines that exist already are returned file by file, standard output first; followed lines
        are merged as they are written.

        Args:
            query: Which lines.
            closing: Ends a followed log when the scheduler is closed.

        Raises:
            BackendError: The job has ended and there is no log. While reading: a file cannot be
                read.
            RequestError: ``query.regex`` is not a regular expression.
        """
        from torchx_kit.logs.file_logs import stream_files  # start-up does not load it

        search = None if query.regex is None else compile_regex(query.regex).search
        paths = stream_files(self.base, query.streams or Stream.COMBINED)
        lines: Iterable[str]
        if query.should_tail and self.is_running:
            lines = self.host.follow(
                paths,
                self.is_finished,
                watch=self.watch,
                last=query.last,
                partial=query.partial and search is None,
                closing=closing,
            )
        else:
            present = [path for path in paths if self.host.exists(path)]
            if not present and not self.is_running:
                hint = self.missing_hint()
                raise BackendError(
                    f"no log at {paths[0]}: it was removed, or the replica never started"
                    + (f"; {hint}" if hint else "")
                )
            lines = chain.from_iterable(self.host.read_lines(one, query.last) for one in present)
            if query.last is not None:  # as if the files were joined
                lines = deque(lines, query.last)
        return filter(search, lines) if search else lines


def log_files(bases: Iterable[str]) -> list[str]:
    """Return the paths of the log files of replicas.

    Args:
        bases: The paths of the replicas' logs, without suffixes.
    """
    from torchx_kit.logs.file_logs import stream_files

    return [path for base in bases for path in stream_files(base, Stream.COMBINED)]
