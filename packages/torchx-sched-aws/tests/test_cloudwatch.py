"""Reading and following log streams, from a double of CloudWatch Logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import pytest
from botocore.exceptions import ClientError

from torchx_sched_aws.client import AccessDeniedError, Clients, ExpiredCredentialsError
from torchx_sched_aws.cloudwatch import (
    PAUSES,
    SETTLE,
    Follower,
    LogStream,
    NoLogError,
    milliseconds,
    read,
)

GROUP = "/aws/batch/job"


class LogsDouble:
    """CloudWatch Logs of one group, as its documentation says it pages."""

    def __init__(self, validate: Callable[[str, str, Mapping[str, Any]], None]) -> None:
        self.streams: dict[str, list[tuple[int, str]]] = {}
        self.page = 100
        self.empty_every = 0
        self.errors: list[Exception] = []
        self.requests: list[Mapping[str, Any]] = []
        self.generation = 0
        self._validate = validate

    def put(self, stream: str, *events: tuple[int, str]) -> None:
        self.streams.setdefault(stream, []).extend(events)

    def get_log_events(self, **words: Any) -> dict[str, Any]:
        self._validate("logs", "GetLogEvents", words)
        self.requests.append(words)
        if self.errors:
            raise self.errors.pop(0)
        events = self.streams.get(words["logStreamName"])
        if events is None:
            raise failure("ResourceNotFoundException", "The specified log stream does not exist.")
        start, end = words.get("startTime", 0), words.get("endTime", 10**18)
        assert start < end
        wanted = [event for event in events if start <= event[0] < end]
        token = words.get("nextToken")
        at = 0
        if token is not None:
            generation, _, position = token.partition("/")
            if int(generation) != self.generation:
                raise failure("InvalidParameterException", "The specified nextToken is invalid.")
            at = int(position)
        if self.empty_every and len(self.requests) % self.empty_every == 0 and at < len(wanted):
            # an empty page whose token is another one all the same
            marked = f"{self.generation}/{at}" if token != f"{self.generation}/{at}" else ""
            return {"events": [], "nextForwardToken": marked or f"{self.generation}/0{at}"}
        page = wanted[at : at + min(self.page, words["limit"])]
        following = f"{self.generation}/{at + len(page)}"
        return {
            "events": [{"timestamp": stamp, "message": text} for stamp, text in page],
            "nextForwardToken": token if token and not page else following,
        }


def failure(code: str, message: str = "x") -> Exception:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetLogEvents")


@pytest.fixture
def logs(validate: Callable[[str, str, Mapping[str, Any]], None]) -> LogsDouble:
    return LogsDouble(validate)


@pytest.fixture
def clients(logs: LogsDouble) -> Clients:
    return Clients({"logs": logs})


def numbered(first: int, last: int) -> list[tuple[int, str]]:
    """Lines of which several have the same time."""
    return [(1_000 + i // 7, f"line {i}") for i in range(first, last)]


@pytest.mark.parametrize("empty_every", [0, 2, 3, 7])
def test_fifty_pages_lose_and_double_nothing(
    clients: Clients, logs: LogsDouble, empty_every: int
) -> None:
    logs.put("s", *numbered(0, 5_000))
    logs.empty_every = empty_every
    lines = list(LogStream(clients, GROUP, "s").lines())
    assert lines == [f"line {i}\n" for i in range(5_000)]
    if not empty_every:
        assert len(logs.requests) == 51


def test_reading_goes_on_where_it_ended(clients: Clients, logs: LogsDouble) -> None:
    stream = LogStream(clients, GROUP, "s")
    logs.put("s", *numbered(0, 250))
    assert len(list(stream.lines())) == 250
    assert list(stream.lines()) == []
    logs.put("s", *numbered(250, 260))
    assert list(stream.lines()) == [f"line {i}\n" for i in range(250, 260)]
    assert [r.get("nextToken") for r in logs.requests[-2:]] == ["0/250", "0/260"]


def test_a_token_that_is_too_old(clients: Clients, logs: LogsDouble) -> None:
    stream = LogStream(clients, GROUP, "s")
    logs.put("s", *numbered(0, 251))  # the last time has 6 of its 7 lines
    assert len(list(stream.lines())) == 251
    logs.generation += 1
    logs.put("s", *numbered(251, 300))
    assert list(stream.lines()) == [f"line {i}\n" for i in range(251, 300)]
    assert logs.requests[-2]["startTime"] == 1_035


def test_whole_lines(clients: Clients, logs: LogsDouble) -> None:
    logs.put("s", (1, "a"), (1, " b \t"), (1, "c\nd"), (2, "e\n"), (2, "x\u2028y"), (2, "r\r"))
    lines = list(LogStream(clients, GROUP, "s").lines())
    assert lines == ["a\n", " b \t\n", "c\n", "d\n", "e\n", "x\u2028y\n", "r\r\n"]


def at(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (None, None, "abc"),
        (1_000, None, "abc"),
        (1_001, None, "bc"),
        (1_001.5, None, "bc"),
        (None, 2_000, "ab"),
        (None, 2_000.5, "abc"),
        (1_001, 2_000, "b"),
        (3_000, None, ""),
        (None, 500, ""),
        (2_000, 1_000, ""),
    ],
)
def test_since_and_until(
    clients: Clients,
    logs: LogsDouble,
    since: float | None,
    until: float | None,
    expected: str,
) -> None:
    logs.put("s", (1_000, "a"), (1_001, "b"), (2_000, "c"))
    times = [None if time is None else at(time) for time in (since, until)]
    lines = list(LogStream(clients, GROUP, "s", *times).lines())
    assert "".join(line.strip() for line in lines) == expected


def test_local_times(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    assert milliseconds(moment.astimezone().replace(tzinfo=None)) == milliseconds(moment)


class Job:
    """A job that a test moves on, one look after the other."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.now = 100.0
        self.ended: float | None = None
        self.steps = list(steps)
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        if self.steps:
            self.steps.pop(0)()

    def end(self) -> None:
        self.ended = self.now

    def follower(self, clients: Clients, **words: Any) -> Follower:
        return Follower(
            clients, lambda: self.ended, sleep=self.sleep, clock=lambda: self.now, **words
        )


def followed(job: Job, clients: Clients, *streams: LogStream, **words: Any) -> Iterator[str]:
    return job.follower(clients, **words).follow(lambda: list(streams))


def test_following_to_the_end_and_what_comes_after(clients: Clients, logs: LogsDouble) -> None:
    job = Job(
        lambda: None,  # the stream does not exist yet
        lambda: logs.put("s", *numbered(0, 300)),
        lambda: logs.put("s", *numbered(300, 301)),
        lambda: job.end(),
        lambda: logs.put("s", *numbered(301, 305)),  # arrives after the end
    )
    lines = list(followed(job, clients, LogStream(clients, GROUP, "s")))
    assert lines == [f"line {i}\n" for i in range(305)]
    assert job.now - 100 < 20


def test_pauses_grow_and_shrink(clients: Clients, logs: LogsDouble) -> None:
    quiet: list[Callable[[], object]] = [lambda: None] * 12
    job = Job(*quiet, lambda: logs.put("s", (1, "x")), lambda: job.end())
    logs.put("s")
    assert list(followed(job, clients, LogStream(clients, GROUP, "s"))) == ["x\n"]
    assert job.pauses[:3] == [0.5, 1.0, 2.0]
    assert job.pauses[11] == 5.0
    assert job.pauses[13] == 0.5


@pytest.mark.parametrize("quiet", range(1, 9))
def test_the_last_look_is_as_soon_as_nothing_more_can_arrive(
    clients: Clients, logs: LogsDouble, quiet: int
) -> None:
    job = Job(*[lambda: None] * quiet, lambda: job.end())
    logs.put("s", (1, "x"))
    assert list(followed(job, clients, LogStream(clients, GROUP, "s"))) == ["x\n"]
    assert job.ended is not None
    assert SETTLE <= job.now - job.ended < SETTLE + PAUSES[0]


def test_following_what_has_ended_ends_at_once(clients: Clients, logs: LogsDouble) -> None:
    job = Job()
    job.ended = 50.0
    logs.put("s", (1, "x"))
    assert list(followed(job, clients, LogStream(clients, GROUP, "s"))) == ["x\n"]
    assert job.pauses == []


def test_a_clock_that_is_ahead_cuts_nothing(clients: Clients, logs: LogsDouble) -> None:
    def end() -> None:
        job.ended = 1.0  # by AWS's clock, which is far behind ours

    job = Job(end, lambda: logs.put("s", (1, "late")))
    logs.put("s", (1, "x"))
    lines = list(followed(job, clients, LogStream(clients, GROUP, "s")))
    assert lines == ["x\n", "late\n"]


def test_following_ends_at_until(clients: Clients, logs: LogsDouble) -> None:
    job = Job()
    logs.put("s", (104_999, "x"), (105_000, "y"))
    stream = LogStream(clients, GROUP, "s", until=at(105_000))
    assert list(followed(job, clients, stream)) == ["x\n"]
    assert 110 <= job.now < 116


def test_attempts_one_after_the_other(clients: Clients, logs: LogsDouble) -> None:
    streams = [LogStream(clients, GROUP, "one")]

    def again() -> None:
        logs.put("two", (2, "b"))
        streams.append(LogStream(clients, GROUP, "two"))

    job = Job(again, lambda: job.end())
    logs.put("one", (1, "a"))
    assert list(job.follower(clients).follow(lambda: streams)) == ["a\n", "b\n"]


@pytest.mark.parametrize("code", ["ExpiredTokenException", "ThrottlingException"])
def test_errors_that_pass_are_waited_out(
    clients: Clients,
    logs: LogsDouble,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    renewed: list[float] = []
    monkeypatch.setattr(clients, "renew", lambda: renewed.append(job.now))
    job = Job(
        lambda: logs.errors.extend([failure(code)] * 3),
        *[lambda: None] * 3,
        lambda: logs.put("s", *numbered(250, 300)),
        lambda: job.end(),
    )
    logs.put("s", *numbered(0, 250))
    lines = list(followed(job, clients, LogStream(clients, GROUP, "s")))
    assert lines == [f"line {i}\n" for i in range(300)]
    assert len(renewed) == (3 if "Expired" in code else 0)
    assert len([r for r in caplog.records if "trying again" in r.message]) == 1


def test_an_error_in_the_middle_of_the_pages(clients: Clients, logs: LogsDouble) -> None:
    logs.put("s", *numbered(0, 1_000))
    job = Job(lambda: job.end())
    lines = followed(job, clients, LogStream(clients, GROUP, "s"))
    first = list(islice(lines, 450))
    logs.errors.append(failure("ExpiredTokenException"))
    assert [*first, *lines] == [f"line {i}\n" for i in range(1_000)]


def test_patience_ends(clients: Clients, logs: LogsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.errors.extend([failure("ExpiredTokenException")] * 1_000)
    job = Job()
    monkeypatch.setattr("time.monotonic", lambda: job.now)
    with pytest.raises(ExpiredCredentialsError, match="have expired"):
        list(followed(job, clients, LogStream(clients, GROUP, "s"), patience=60))
    assert 150 < job.now <= 160


def test_errors_that_stay_are_told(clients: Clients, logs: LogsDouble) -> None:
    logs.errors.append(failure("AccessDeniedException"))
    with pytest.raises(AccessDeniedError):
        list(followed(Job(), clients, LogStream(clients, GROUP, "s")))


def test_no_stream_is_empty_and_no_group_is_told(clients: Clients, logs: LogsDouble) -> None:
    stream = LogStream(clients, GROUP, "none")
    assert list(read([stream])) == []
    job = Job(lambda: job.end())
    assert list(followed(job, clients, stream)) == []
    missing = failure("ResourceNotFoundException", "The specified log group does not exist.")
    logs.errors.append(missing)
    with pytest.raises(NoLogError, match=f"cannot read the log {GROUP}.*group does not exist"):
        list(read([stream]))
    logs.errors.extend([missing] * 100)
    job = Job(lambda: job.end())
    with pytest.raises(NoLogError):
        list(followed(job, clients, stream))
    assert job.now >= 105


def test_streams_are_read_one_after_the_other(clients: Clients, logs: LogsDouble) -> None:
    logs.put("one", (9, "a"))
    logs.put("two", (1, "b"))
    streams = [LogStream(clients, GROUP, name) for name in ("one", "none", "two")]
    assert list(read(streams)) == ["a\n", "b\n"]
