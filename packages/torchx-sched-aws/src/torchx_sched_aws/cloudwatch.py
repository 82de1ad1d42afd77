"""Logs in CloudWatch: whole lines of a stream, in order, none lost and none twice."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torchx_kit.retry import Backoff
from torchx_kit.times import to_nanoseconds
from torchx_sched_aws.client import (
    AwsError,
    Clients,
    ExpiredCredentialsError,
    NoCredentialsError,
    ThrottledError,
    UnreachableError,
    aws_errors,
)
from torchx_specs.errors import RequestError
from torchx_specs.schedulers.api import Stream, split_lines

if TYPE_CHECKING:
    from datetime import datetime

#: Events of one page.
PAGE = 10_000
#: Seconds between two looks at a log that is followed: at first, and when it stays silent.
PAUSES = (0.5, 5.0)
#: How long after the end of a job its last lines may take to arrive, in seconds.
SETTLE = 5.0
#: How long a follower goes on without an answer, or without valid credentials, in seconds.
PATIENCE = 300.0

_MILLISECOND = 1_000_000

logger = logging.getLogger(__name__)


class NoLogError(AwsError):
    """The log group or log stream does not exist.

    Attributes:
        group: True if it is the group
    """

    group = False


class LogStream:
    """One log stream, read on from where it was left.

    Args:
        clients: of AWS
        group: the log group
        stream: the log stream
        since: only what was written at that time or later
        until: only what was written before that time
    """

    def __init__(
        self,
        clients: Clients,
        group: str,
        stream: str,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        self.group = group
        self.stream = stream
        self._clients = clients
        self._since = milliseconds(since) if since is not None else None
        # events have milliseconds: one that was written within the last one belongs to it
        self._until = milliseconds(until, round_up=True) if until is not None else None
        self._token: str | None = None
        # where to go on if the token is no longer valid: events have no number, only times that
        # need not be unique
        self._at = -1
        self._count = 0
        self._start = 0

    def lines(self) -> Iterator[str]:
        """Yields the lines that are there and were not read before, each with its newline.

        Raises:
            NoLogError: no such group or stream
            AwsError: AWS refuses, or does not answer; the next call goes on where this one ended
        """
        for event in self._events():
            stamp = event["timestamp"]
            if self._since is not None and stamp < self._since:
                continue
            if self._until is not None and stamp >= self._until:
                continue
            message = event["message"]
            yield from split_lines(message if message.endswith("\n") else message + "\n")

    def is_past(self, now: float) -> bool:
        """Returns True if nothing that is written now will be wanted.

        Args:
            now: in seconds since 1970
        """
        return self._until is not None and now * 1000 >= self._until

    def _events(self) -> Iterator[dict[str, Any]]:
        if self._until is not None and self._until <= (self._since or 0):
            return
        skip = self._count if self._token is None else 0
        while True:
            try:
                page = self._page()
            except AwsError as e:
                # tokens are valid for a day
                if e.code != "InvalidParameterException" or self._token is None:
                    raise
                self._token = None
                skip = self._count
                continue
            for event in page["events"]:
                stamp = event["timestamp"]
                if stamp == self._at:
                    if skip > 0:
                        skip -= 1
                        continue
                    self._count += 1
                else:
                    self._at, self._count, skip = stamp, 1, 0
                yield event
            token = page.get("nextForwardToken")
            if token is None or token == self._token:
                return
            # pages may be empty and not be the last
            self._token = token

    def _page(self) -> dict[str, Any]:
        words: dict[str, Any] = {
            "logGroupName": self.group,
            "logStreamName": self.stream,
            "startFromHead": True,
            "limit": PAGE,
        }
        if self._token is not None:
            words["nextToken"] = self._token
        else:
            self._start = max(self._since or 0, self._at)
        if self._start > 0:
            words["startTime"] = self._start
        if self._until is not None:
            words["endTime"] = self._until
        try:
            with aws_errors(f"read the log {self.group} {self.stream}"):
                page: dict[str, Any] = self._clients.client("logs").get_log_events(**words)
        except AwsError as e:
            if e.code != "ResourceNotFoundException":
                raise
            missing = NoLogError(str(e), e.code)
            missing.group = "group" in str(e.__cause__)
            raise missing from e
        return page


class Follower:
    """Follows log streams until their job has ended and everything has arrived.

    Errors that may pass (credentials that have expired, throttling, a lost connection) are waited
    out; credentials are looked for anew each time.

    Args:
        clients: of AWS
        ended_at: when the job ended, in seconds since 1970; None while it runs
        sleep: waits
        clock: the time, in seconds since 1970
        settle: how long after the end lines may arrive, in seconds
        patience: how long to go on without an answer, in seconds
    """

    def __init__(
        self,
        clients: Clients,
        ended_at: Callable[[], float | None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        settle: float = SETTLE,
        patience: float = PATIENCE,
    ) -> None:
        self._clients = clients
        self._ended_at = ended_at
        self._sleep = sleep
        self._clock = clock
        self._settle = settle
        self._patience = patience

    def follow(self, streams: Callable[[], list[LogStream]]) -> Iterator[str]:
        """Yields lines as they arrive.

        Args:
            streams: returns the streams to read, always the same objects, in their order; more of
                them may come up. One that others follow is read for what is left in it.

        Raises:
            NoLogError: the job has ended, and its log group does not exist
            AwsError: AWS refuses, or is silent for too long
        """
        shortest, longest = PAUSES
        left = longest
        backoff = Backoff(
            self._patience,
            first_pause=shortest,
            longest_pause=longest,
            sleep=lambda seconds: self._sleep(min(seconds, left)),
        )
        told = False
        ran = False
        seen_at: float | None = None
        while True:
            missing: NoLogError | None = None
            left = longest
            try:
                # first this: what is written until then is read below
                ended_at = self._ended_at()
                now = self._clock()
                if ended_at is None:
                    ran = True
                elif ran and seen_at is None:
                    seen_at = now  # AWS's clock may be another
                wait_from = ended_at if seen_at is None else seen_at
                done = wait_from is not None and now >= wait_from + self._settle
                current = streams()
                past = bool(current) and all(s.is_past(now - self._settle) for s in current)
                for stream in current:
                    try:
                        for line in stream.lines():
                            backoff.reset()
                            yield line
                    except NoLogError as e:
                        missing = e
            except AwsError as e:
                if not _passes(e):
                    raise
                if isinstance(e, (ExpiredCredentialsError, NoCredentialsError)):
                    self._clients.renew()
                if not told:
                    logger.warning("%s; trying again", e)
                    told = True
                backoff.pause_after(e)
                continue
            told = False
            if done or past:
                if missing is not None and missing.group:
                    raise missing
                return
            if wait_from is not None:  # and not longer than what is left to wait
                left = max(wait_from + self._settle - now, shortest)
            backoff.pause()


class ReplicaLog(ABC):
    """The log of one replica: log streams, one for each time that it was started.

    Args:
        clients: of AWS
        group: the log group
    """

    def __init__(self, clients: Clients, group: str) -> None:
        self._clients = clients
        self._group = group

    @abstractmethod
    def ended_at(self) -> float | None:
        """Looks at the replica, and returns when it ended for good in seconds since 1970, None if
        it has not.

        Raises:
            AwsError: AWS refuses, or does not answer
        """

    @abstractmethod
    def stream_names(self) -> Iterable[str]:
        """Returns the names of the streams in their order; those it has named before may lack.

        Raises:
            AwsError: AWS refuses, or does not answer
        """

    def lines(
        self, follow: bool, since: datetime | None, until: datetime | None, settle: float = SETTLE
    ) -> Iterator[str]:
        """Yields the lines, each with its newline.

        Args:
            follow: go on until the replica has ended for good
            since: only what was written at that time or later
            until: only what was written before that time
            settle: how long after the end lines may arrive, in seconds

        Raises:
            NoLogError: the log group does not exist
            AwsError: AWS refuses, or is silent for long
        """
        known: dict[str, LogStream] = {}

        def streams() -> list[LogStream]:
            for name in self.stream_names():
                if name not in known:
                    known[name] = LogStream(self._clients, self._group, name, since, until)
            return list(known.values())

        if follow:
            follower = Follower(self._clients, self.ended_at, settle=settle)
            yield from follower.follow(streams)
        else:
            yield from read(streams())


def read(streams: list[LogStream]) -> Iterator[str]:
    """Yields the lines that are there, stream by stream; a stream that is missing is empty.

    Raises:
        NoLogError: the log group does not exist
        AwsError: AWS refuses, or does not answer
    """
    for stream in streams:
        try:
            yield from stream.lines()
        except NoLogError as e:
            if e.group:
                raise


def check_streams(scheduler: str, streams: Stream | None) -> None:
    """Raises RequestError for one output by itself, as CloudWatch keeps both together."""
    if streams not in (None, Stream.COMBINED):
        raise RequestError(
            f"{scheduler} keeps no {streams.value} by itself: CloudWatch has both outputs"
            " together; ask for combined"
        )


def milliseconds(when: datetime, *, round_up: bool = False) -> int:
    """Return a time in milliseconds since 1970; a time without a zone is local time."""
    nanoseconds = to_nanoseconds(when)
    return -(-nanoseconds // _MILLISECOND) if round_up else nanoseconds // _MILLISECOND


def _passes(error: AwsError) -> bool:
    """Returns True if the same request may work later."""
    if isinstance(
        error, (ExpiredCredentialsError, NoCredentialsError, ThrottledError, UnreachableError)
    ):
        return True
    return error.code in ("ServiceUnavailableException", "InternalFailure", "500", "503")
