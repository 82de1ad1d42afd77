"""Read log streams in CloudWatch: each line exactly once, in the order of its stream."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from torchx_kit.logs.lines import attempt_mark, filter_regex, split_lines
from torchx_kit.retry import Backoff
from torchx_kit.times import to_nanoseconds
from torchx_sched_aws.client import (
    AwsError,
    Clients,
    ExpiredCredentialsError,
    NoCredentialsError,
    ThrottledError,
    UnreachableError,
)
from torchx_sched_aws.limits import without_unset
from torchx_sched_aws.model_limits import GET_LOG_EVENTS
from torchx_specs.errors import RequestError, UnknownAppException
from torchx_specs.schedulers.closing import Closing, closing_of
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from torchx_sched_aws.base_scheduler import AwsScheduler

#: Maximum number of log events in a response.
PAGE_SIZE: int = GET_LOG_EVENTS["limit"]["max"]
#: Seconds between two polls of a followed log: the first pause and the longest.
POLL_PAUSES = (0.5, 5.0)
#: How long the last log lines of a job may take to arrive after the job's end, in seconds.
LOG_DELAY = 5.0
#: How long a follower retries transient errors, in seconds.
MAX_OUTAGE = 300.0

_MILLISECOND = 1_000_000
# The error code for a missing log stream or log group.
_NOT_FOUND = "ResourceNotFoundException"

#: Queries the job of a replica. It returns the replica's end in seconds since 1970, or None while
#: the replica may still log lines, and the names of the replica's log streams in the order of its
#: attempts. A later call may leave out names of an earlier call.
PollStreams: TypeAlias = Callable[[], tuple[float | None, Iterable[str]]]

logger = logging.getLogger(__name__)


class LogStream:
    """One log stream; each read continues after the previous one. A missing stream is empty.

    Args:
        clients: The boto3 clients to use.
        group: Name of the log group.
        stream: Name of the log stream.
        since: Leave out lines written before this time.
        until: Leave out lines written at or after this time.
        mark: A line to yield before the first line of the stream; empty for none.
    """

    def __init__(
        self,
        clients: Clients,
        group: str,
        stream: str,
        since: datetime | None = None,
        until: datetime | None = None,
        mark: str = "",
    ) -> None:
        self.group = group
        self.stream = stream
        self._clients = clients
        self.mark = mark
        self._since = 0 if since is None else to_milliseconds(since)
        # Event times are whole milliseconds, so round up to keep the last millisecond's events.
        self._until = inf if until is None else to_milliseconds(until, round_up=True)
        self._token: str | None = None
        # If the token expires, reading continues from the time of the last event. Several events
        # may have that time, and events have no ids, so count the events read with that time.
        self._last_time = -1
        self._last_count = 0
        self._start = 0

    @property
    def has_begun(self) -> bool:
        """Whether an event was read, or found by :meth:`read_last` before the last lines."""
        return self._last_time >= 0

    def lines(self) -> Iterator[str]:
        """Yield the unread lines, each with its newline.

        Raises:
            AwsError: The log group does not exist, AWS refused the request or did not answer. The
                next call continues with the first unread line.
        """
        if self._until <= self._since:
            return
        skip = self._last_count if self._token is None else 0
        while True:
            try:
                page = self._page(self._token)
            except AwsError as e:
                # A token expires after 24 hours.
                if e.code != "InvalidParameterException" or self._token is None:
                    raise
                self._token = None
                skip = self._last_count
                continue
            for event in page["events"]:
                time_ms = event["timestamp"]
                if time_ms == self._last_time:
                    if skip > 0:
                        skip -= 1
                        continue
                    self._last_count += 1
                else:
                    self._last_time, self._last_count, skip = time_ms, 1, 0
                if self._since <= time_ms < self._until:
                    if self.mark:
                        yield self.mark
                        self.mark = ""
                    yield from _event_lines(event)
            token = page.get("nextForwardToken")
            if token is None or token == self._token:
                return
            # An empty page may not be the last one.
            self._token = token

    def read_last(self, last: int) -> list[str]:
        """Return the last lines of the stream; :meth:`lines` then continues after them.

        Args:
            last: Maximum number of lines.

        Raises:
            AwsError: The log group does not exist, AWS refused the request or did not answer.
        """
        if self._until <= self._since:
            return []
        found: deque[str] = deque()
        self._last_time, self._last_count = -1, 0
        token: str | None = None
        forward: str | None = None
        is_earlier = False
        # Continue until all events with the time of the newest event are counted, too: if the
        # forward token expires, the next read starts at that time and skips the counted events.
        while len(found) < last or not is_earlier:
            page = self._page(token, backward=True, limit=max(last, 1))
            forward = forward or page.get("nextForwardToken")
            for event in reversed(page["events"]):
                if self._last_time < 0:
                    self._last_time = event["timestamp"]
                if event["timestamp"] == self._last_time:
                    self._last_count += 1
                else:
                    is_earlier = True
                if len(found) < last:
                    found.extendleft(reversed(_event_lines(event)))
            if page.get("nextBackwardToken") in (None, token):
                break
            # An empty page may not be the last one.
            token = page["nextBackwardToken"]
        self._token = forward
        return list(found)[max(0, len(found) - last) :]

    def is_past(self, now: float) -> bool:
        """Return whether every line written at or after ``now`` is too late for ``until``.

        Args:
            now: The time, in seconds since 1970.
        """
        return now * 1000 >= self._until

    def _page(
        self, token: str | None, *, backward: bool = False, limit: int = PAGE_SIZE
    ) -> dict[str, Any]:
        """Return a page of the stream; it has no events if the stream does not exist.

        Args:
            token: The token of the page; None begins at the last known event, or backwards at the
                newest event.
            backward: Whether the next page has older events.
            limit: Maximum number of events.
        """
        if token is None:
            self._start = self._since if backward else max(self._since, self._last_time)
        self._clients.log_requests.wait()
        page: dict[str, Any] | None = self._clients.call(
            "logs",
            "get_log_events",
            f"read the log {self.group} {self.stream}",
            _is_missing_stream,
            **without_unset(
                {
                    "logGroupName": self.group,
                    "logStreamName": self.stream,
                    "startFromHead": not backward,
                    "limit": min(limit, PAGE_SIZE),
                    "nextToken": token,
                    "startTime": self._start if self._start > 0 else None,
                    "endTime": self._until if self._until < inf else None,
                }
            ),
        )
        return page or {"events": []}


def _event_lines(event: Mapping[str, Any]) -> list[str]:
    message = event["message"]
    return split_lines(message if message.endswith("\n") else message + "\n")


def follow(
    clients: Clients,
    poll: Callable[[], tuple[float | None, list[LogStream]]],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
    *,
    log_delay: float = LOG_DELAY,
    max_outage: float = MAX_OUTAGE,
) -> Iterator[str]:
    """Yield lines as they arrive, until the job has ended and the last lines have arrived.

    The end is earlier if every later line is too late for the streams' ``until``. Transient errors
    (expired credentials, throttling, a lost connection) are retried. After a credentials error, new
    clients read the credentials again.

    Args:
        clients: The boto3 clients to use.
        poll: Function that returns the job's end in seconds since 1970, or None while the job may
            still log lines, and the streams to read, in order. Each call must return the same
            streams as the call before, and may append new ones.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns the time in seconds since 1970.
        log_delay: How long the last log lines may take to arrive after the job's end, in seconds.
        max_outage: How long to retry transient errors, in seconds.

    Raises:
        AwsError: AWS refused a request, or transient errors lasted longer than ``max_outage``. A
            log group may not exist before the end of the job or of the requested time.
    """
    shortest, longest = POLL_PAUSES
    left = longest
    backoff = Backoff(
        max_outage,
        first_pause=shortest,
        longest_pause=longest,
        sleep=lambda seconds: sleep(min(seconds, left)),
        clock=clock,
    )
    warned = was_running = False
    deadline: float | None = None  # until when the last lines may arrive
    while True:
        left = longest
        try:
            # Query the end before reading, so that no line written before the end is missed.
            ended, streams = poll()
            now = clock()
            if ended is None:
                was_running = True
            elif deadline is None:
                # AWS's clock may differ from clock(), so prefer the end that was observed.
                deadline = (now if was_running else ended) + log_delay
            past = bool(streams) and all(s.is_past(now - log_delay) for s in streams)
            done = past or (deadline is not None and now >= deadline)
            try:
                for line in chain.from_iterable(stream.lines() for stream in streams):
                    backoff.reset()
                    yield line
            except AwsError as e:
                # The first job of an account creates the log group.
                if done or e.code != _NOT_FOUND:
                    raise
        except AwsError as e:
            if not _is_transient(e):
                raise
            if isinstance(e, (ExpiredCredentialsError, NoCredentialsError)):
                clients.close()
            if not warned:
                logger.warning("%s; trying again", e)
                warned = True
            backoff.pause_after(e)
            continue
        if done:
            return
        warned = False
        if deadline is not None:  # sleep at most until the time of the last poll
            left = max(deadline - now, shortest)
        backoff.pause()


class CloudWatchLogs(Logs["AwsScheduler[Any]"]):
    """Reads the logs of one scheduler's apps, which are in CloudWatch."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of all attempts of a replica, oldest attempt first; see :meth:`Logs.read`.

        Raises:
            UnknownAppException: The app does not exist.
            RequestError: The role or replica does not exist, or ``query.streams`` is standard
                output or standard error, which CloudWatch does not store separately.
            AwsError: AWS refused the request, or did not answer for several minutes.
        """
        scheduler = self.scheduler
        closing = closing_of(scheduler)
        if query.streams not in (None, Stream.COMBINED):
            raise RequestError(
                f"{scheduler.backend} cannot show {query.streams.value} alone: CloudWatch stores"
                " stdout and stderr together; request the combined output"
            )
        job = scheduler.find_job(app_id)
        if job is None:
            raise UnknownAppException(f"{scheduler.backend}://{scheduler.session_name}/{app_id}")
        group, poll = scheduler._log_of(app_id, job, role, k)
        lines = replica_lines(scheduler._clients, group, poll, query, closing, scheduler._log_delay)
        return filter_regex(query.regex, lines) if query.regex else lines


def replica_lines(
    clients: Clients,
    group: str,
    poll: PollStreams,
    query: LogQuery,
    closing: Closing,
    log_delay: float = LOG_DELAY,
) -> Iterator[str]:
    """Yield the lines of one replica, each with its newline.

    Args:
        clients: The boto3 clients to use.
        group: Name of the log group.
        poll: Finds the replica's log streams.
        query: Which lines; ``regex``, ``streams`` and ``partial`` have no effect.
        closing: Ends a followed log when the scheduler is closed.
        log_delay: How long the last log lines may take to arrive after the replica's end, in
            seconds.

    Raises:
        AwsError: The log group does not exist, AWS refused a request, or did not answer for several
            minutes.
    """
    known: dict[str, LogStream] = {}

    def poll_known() -> tuple[float | None, list[LogStream]]:
        ended, names = poll()
        for name in names:
            if name not in known:
                has_mark = known and query.attempts and query.regex is None
                mark = attempt_mark(len(known) + 1) if has_mark else ""
                known[name] = LogStream(clients, group, name, query.since, query.until, mark)
        return ended, list(known.values())

    if query.last is not None:
        yield from _read_last(poll_known()[1], query.last, query.should_tail)
    if query.should_tail:
        lines = follow(clients, poll_known, closing.sleep, log_delay=log_delay)
        yield from closing.until_closed(lines)
    elif query.last is None:
        for stream in poll_known()[1]:
            yield from stream.lines()


def _read_last(streams: list[LogStream], last: int, follow: bool) -> list[str]:
    """Return the last lines of several streams, as if the streams were concatenated.

    Args:
        streams: The streams, in order.
        last: Maximum number of lines.
        follow: Whether the caller follows the streams afterwards. Then read every stream, even if
            later streams have enough lines, so that the follower continues at each stream's end.
    """
    found: list[list[str]] = []
    try:
        for stream in reversed(streams):
            if last <= 0 and not follow:
                break
            lines = stream.read_last(last)
            last -= len(lines)
            # If there are fewer lines than were requested, the first one is among them.
            found.append([stream.mark, *lines] if lines and stream.mark and last > 0 else lines)
            if stream.has_begun:
                stream.mark = ""
    except AwsError as e:
        if not follow or e.code != _NOT_FOUND:
            raise
    return [line for lines in reversed(found) for line in lines]


def to_milliseconds(when: datetime, *, round_up: bool = False) -> int:
    """Convert a datetime (local time if it has no time zone) to milliseconds since 1970."""
    nanoseconds = to_nanoseconds(when)
    return -(-nanoseconds // _MILLISECOND) if round_up else nanoseconds // _MILLISECOND


def _is_missing_stream(error: AwsError) -> bool:
    """Return whether an error means that a stream of an existing log group does not exist."""
    return error.code == _NOT_FOUND and "group" not in str(error.__cause__)


def _is_transient(error: AwsError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(
        error, (ExpiredCredentialsError, NoCredentialsError, ThrottledError, UnreachableError)
    ) or error.code in ("ServiceUnavailableException", "InternalFailure", "500", "503")
