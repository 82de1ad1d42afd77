"""Reading and following log streams of a CloudWatch Logs double."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import pytest
from botocore.exceptions import ClientError

from torchx_sched_aws.client import (
    AccessDeniedError,
    AwsError,
    Clients,
    ExpiredCredentialsError,
)
from torchx_sched_aws.cloudwatch import (
    LOG_DELAY,
    POLL_PAUSES,
    LogStream,
    _read_last,
    follow,
    replica_lines,
    to_milliseconds,
)
from torchx_specs.schedulers.closing import Closing
from torchx_specs.schedulers.logs import LogQuery

GROUP = "/aws/batch/job"


class LogsDouble:
    """A double of CloudWatch Logs with one log group, paged as its documentation describes."""

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

    def get_log_events(self, **parameters: Any) -> dict[str, Any]:
        self._validate("logs", "GetLogEvents", parameters)
        self.requests.append(parameters)
        if self.errors:
            raise self.errors.pop(0)
        events = self.streams.get(parameters["logStreamName"])
        if events is None:
            raise client_error(
                "ResourceNotFoundException", "The specified log stream does not exist."
            )
        start, end = parameters.get("startTime", 0), parameters.get("endTime", 10**18)
        assert start < end
        wanted = [event for event in events if start <= event[0] < end]
        token = parameters.get("nextToken")
        if not parameters["startFromHead"]:
            at = len(wanted) if token is None else int(token.partition("/b")[2])
            first = max(0, at - min(self.page, parameters["limit"]))
            return {
                "events": [{"timestamp": t, "message": text} for t, text in wanted[first:at]],
                "nextForwardToken": f"{self.generation}/{at}",
                "nextBackwardToken": f"{self.generation}/b{first}",
            }
        at = 0
        if token is not None:
            generation, _, position = token.partition("/")
            if int(generation) != self.generation:
                raise client_error(
                    "InvalidParameterException", "The specified nextToken is invalid."
                )
            at = int(position)
        if self.empty_every and len(self.requests) % self.empty_every == 0 and at < len(wanted):
            # An empty page that is not the last one has another token than the request.
            marked = f"{self.generation}/{at}" if token != f"{self.generation}/{at}" else ""
            return {"events": [], "nextForwardToken": marked or f"{self.generation}/0{at}"}
        page = wanted[at : at + min(self.page, parameters["limit"])]
        following = f"{self.generation}/{at + len(page)}"
        return {
            "events": [{"timestamp": time, "message": text} for time, text in page],
            "nextForwardToken": token if token and not page else following,
        }


def client_error(code: str, message: str = "x") -> Exception:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetLogEvents")


@pytest.fixture
def logs(validate: Callable[[str, str, Mapping[str, Any]], None]) -> LogsDouble:
    return LogsDouble(validate)


@pytest.fixture
def clients(logs: LogsDouble) -> Clients:
    return Clients({"logs": logs})


def numbered(first: int, last: int) -> list[tuple[int, str]]:
    """Return numbered events: seven events for each millisecond."""
    return [(1_000 + i // 7, f"line {i}") for i in range(first, last)]


@pytest.mark.parametrize("empty_every", [0, 2, 3, 7])
def test_paging_loses_and_repeats_no_line(
    clients: Clients, logs: LogsDouble, empty_every: int
) -> None:
    logs.put("s", *numbered(0, 5_000))
    logs.empty_every = empty_every
    lines = list(LogStream(clients, GROUP, "s").lines())
    assert lines == [f"line {i}\n" for i in range(5_000)]
    if not empty_every:
        assert len(logs.requests) == 51


def test_second_read_continues_after_the_first(clients: Clients, logs: LogsDouble) -> None:
    stream = LogStream(clients, GROUP, "s")
    logs.put("s", *numbered(0, 250))
    assert len(list(stream.lines())) == 250
    assert list(stream.lines()) == []
    logs.put("s", *numbered(250, 260))
    assert list(stream.lines()) == [f"line {i}\n" for i in range(250, 260)]
    assert [r.get("nextToken") for r in logs.requests[-2:]] == ["0/250", "0/260"]


def test_expired_token_loses_and_repeats_no_line(clients: Clients, logs: LogsDouble) -> None:
    stream = LogStream(clients, GROUP, "s")
    logs.put("s", *numbered(0, 251))  # 6 of the 7 events with the last time
    assert len(list(stream.lines())) == 251
    logs.generation += 1
    logs.put("s", *numbered(251, 300))
    assert list(stream.lines()) == [f"line {i}\n" for i in range(251, 300)]
    assert logs.requests[-2]["startTime"] == 1_035


def test_events_become_whole_lines(clients: Clients, logs: LogsDouble) -> None:
    logs.put("s", (1, "a"), (1, " b \t"), (1, "c\nd"), (2, "e\n"), (2, "x\u2028y"), (2, "r\r"))
    lines = list(LogStream(clients, GROUP, "s").lines())
    assert lines == ["a\n", " b \t\n", "c\n", "d\n", "e\n", "x\u2028y\n", "r\r\n"]


def at(to_milliseconds: float) -> datetime:
    return datetime.fromtimestamp(to_milliseconds / 1000, timezone.utc)


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
def test_since_is_inclusive_and_until_exclusive(
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


def test_time_without_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    assert to_milliseconds(moment.astimezone().replace(tzinfo=None)) == to_milliseconds(moment)


class Job:
    """A job and its clock: each sleep calls the next step, which may end the job or add lines."""

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

    def follow(
        self, clients: Clients, streams: list[LogStream], **parameters: Any
    ) -> Iterator[str]:
        return follow(
            clients,
            lambda: (self.ended, list(streams)),
            self.sleep,
            lambda: self.now,
            **parameters,
        )


def followed(job: Job, clients: Clients, *streams: LogStream, **parameters: Any) -> Iterator[str]:
    return job.follow(clients, list(streams), **parameters)


def test_following_includes_lines_that_arrive_after_the_end(
    clients: Clients, logs: LogsDouble
) -> None:
    job = Job(
        lambda: None,  # the stream does not exist yet
        lambda: logs.put("s", *numbered(0, 300)),
        lambda: logs.put("s", *numbered(300, 301)),
        lambda: job.end(),
        lambda: logs.put("s", *numbered(301, 305)),  # these lines arrive after the job's end
    )
    lines = list(followed(job, clients, LogStream(clients, GROUP, "s")))
    assert lines == [f"line {i}\n" for i in range(305)]
    assert job.now - 100 < 20


def test_pauses_grow_while_no_lines_arrive(clients: Clients, logs: LogsDouble) -> None:
    quiet: list[Callable[[], object]] = [lambda: None] * 12
    job = Job(*quiet, lambda: logs.put("s", (1, "x")), lambda: job.end())
    logs.put("s")
    assert list(followed(job, clients, LogStream(clients, GROUP, "s"))) == ["x\n"]
    assert job.pauses[:3] == [0.5, 1.0, 2.0]
    assert job.pauses[11] == 5.0
    assert job.pauses[13] == 0.5


@pytest.mark.parametrize("quiet", range(1, 9))
def test_last_poll_is_right_after_the_log_delay(
    clients: Clients, logs: LogsDouble, quiet: int
) -> None:
    job = Job(*[lambda: None] * quiet, lambda: job.end())
    logs.put("s", (1, "x"))
    assert list(followed(job, clients, LogStream(clients, GROUP, "s"))) == ["x\n"]
    assert job.ended is not None
    assert LOG_DELAY <= job.now - job.ended < LOG_DELAY + POLL_PAUSES[0]


def test_following_an_ended_job_does_not_wait(clients: Clients, logs: LogsDouble) -> None:
    job = Job()
    job.ended = 50.0
    logs.put("s", (1, "x"))
    assert list(followed(job, clients, LogStream(clients, GROUP, "s"))) == ["x\n"]
    assert job.pauses == []


def test_differing_clocks_lose_no_line(clients: Clients, logs: LogsDouble) -> None:
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


def test_following_reads_attempts_in_order(clients: Clients, logs: LogsDouble) -> None:
    streams = [LogStream(clients, GROUP, "one")]

    def again() -> None:
        logs.put("two", (2, "b"))
        streams.append(LogStream(clients, GROUP, "two"))

    job = Job(again, lambda: job.end())
    logs.put("one", (1, "a"))
    assert list(job.follow(clients, streams)) == ["a\n", "b\n"]


@pytest.mark.parametrize("code", ["ExpiredTokenException", "ThrottlingException"])
def test_transient_errors_are_retried(
    clients: Clients,
    logs: LogsDouble,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    renewed: list[float] = []
    monkeypatch.setattr(clients, "close", lambda: renewed.append(job.now))
    job = Job(
        lambda: logs.errors.extend([client_error(code)] * 3),
        *[lambda: None] * 3,
        lambda: logs.put("s", *numbered(250, 300)),
        lambda: job.end(),
    )
    logs.put("s", *numbered(0, 250))
    lines = list(followed(job, clients, LogStream(clients, GROUP, "s")))
    assert lines == [f"line {i}\n" for i in range(300)]
    assert len(renewed) == (3 if "Expired" in code else 0)
    assert len([r for r in caplog.records if "trying again" in r.message]) == 1


def test_error_between_pages_loses_and_repeats_no_line(clients: Clients, logs: LogsDouble) -> None:
    logs.put("s", *numbered(0, 1_000))
    job = Job(lambda: job.end())
    lines = followed(job, clients, LogStream(clients, GROUP, "s"))
    first = list(islice(lines, 450))
    logs.errors.append(client_error("ExpiredTokenException"))
    assert [*first, *lines] == [f"line {i}\n" for i in range(1_000)]


def test_long_outage_is_an_error(clients: Clients, logs: LogsDouble) -> None:
    logs.errors.extend([client_error("ExpiredTokenException")] * 1_000)
    job = Job()
    with pytest.raises(ExpiredCredentialsError, match="have expired"):
        list(followed(job, clients, LogStream(clients, GROUP, "s"), max_outage=60))
    assert 150 < job.now <= 160


def test_permanent_errors_are_raised(clients: Clients, logs: LogsDouble) -> None:
    logs.errors.append(client_error("AccessDeniedException"))
    with pytest.raises(AccessDeniedError):
        list(followed(Job(), clients, LogStream(clients, GROUP, "s")))


def test_missing_stream_is_empty_and_missing_group_is_an_error(
    clients: Clients, logs: LogsDouble
) -> None:
    stream = LogStream(clients, GROUP, "none")
    assert list(stream.lines()) == []
    job = Job(lambda: job.end())
    assert list(followed(job, clients, stream)) == []
    missing = client_error("ResourceNotFoundException", "The specified log group does not exist.")
    logs.errors.append(missing)
    with pytest.raises(AwsError, match=f"cannot read the log {GROUP}.*group does not exist"):
        list(stream.lines())
    logs.errors.extend([missing] * 100)
    job = Job(lambda: job.end())
    with pytest.raises(AwsError, match="group does not exist"):
        list(followed(job, clients, stream))
    assert job.now >= 105


def test_streams_are_read_in_order(clients: Clients, logs: LogsDouble) -> None:
    logs.put("one", (9, "a"))
    logs.put("two", (1, "b"))
    assert lines_of_attempts(clients, LogQuery()) == ["a\n", "b\n"]


@pytest.mark.parametrize("last", [0, 1, 3, 7, 99, 250, 1_000])
def test_last_lines_are_the_end_of_the_stream(
    clients: Clients, logs: LogsDouble, last: int
) -> None:
    logs.put("s", *numbered(0, 250), (2_000, "a\nb\nc"))
    whole = list(LogStream(clients, GROUP, "s").lines())
    assert LogStream(clients, GROUP, "s").read_last(last) == (whole[-last:] if last else [])


def test_last_lines_are_read_from_the_end_of_the_stream(clients: Clients, logs: LogsDouble) -> None:
    logs.put("s", *numbered(0, 5_003))  # the last five events have one time
    assert len(LogStream(clients, GROUP, "s").read_last(10)) == 10
    assert [(r["limit"], r["startFromHead"]) for r in logs.requests] == [(10, False)]


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("last", [0, 1, 3, 1_000])
@pytest.mark.parametrize("before", [0, 1, 251])
def test_reading_continues_after_the_last_lines(
    clients: Clients, logs: LogsDouble, before: int, last: int, expired: bool
) -> None:
    logs.put("s", *numbered(0, before))
    stream = LogStream(clients, GROUP, "s")
    assert len(stream.read_last(last)) == min(last, before)
    logs.generation += expired
    logs.put("s", *numbered(before, 300))
    assert list(stream.lines()) == [f"line {i}\n" for i in range(before, 300)]


def test_last_lines_of_a_time_are_the_end_of_that_part(clients: Clients, logs: LogsDouble) -> None:
    logs.put("s", *numbered(0, 250))
    stream = LogStream(clients, GROUP, "s", since=at(1_010), until=at(1_020))
    assert stream.read_last(2) == ["line 138\n", "line 139\n"]
    assert len(LogStream(clients, GROUP, "s", at(1_010), at(1_020)).read_last(500)) == 70


def lines_of_attempts(clients: Clients, query: LogQuery) -> list[str]:
    """Read the log of an ended replica with three attempts, the second of which has no stream."""
    streams = (1.0, ["one", "none", "two"])
    return list(replica_lines(clients, GROUP, lambda: streams, query, Closing()))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("last", [0, 1, 2, 3, 5])
def test_last_lines_continue_in_the_stream_of_the_attempt_before(
    clients: Clients, logs: LogsDouble, last: int, follow: bool
) -> None:
    logs.put("one", (1, "a"), (2, "b"))
    logs.put("two", (3, "c"), (4, "d"))
    lines = [f"{x}\n" for x in "abcd"[max(0, 4 - last) :]]
    assert lines_of_attempts(clients, LogQuery(should_tail=follow, last=last)) == lines


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("last", [None, 0, 1, 2, 3, 5])
def test_a_mark_shows_where_an_attempt_begins(
    clients: Clients, logs: LogsDouble, last: int | None, follow: bool
) -> None:
    logs.put("one", (1, "a"), (2, "b"))
    logs.put("two", (3, "c"), (4, "d"))
    lines = ["a\n", "b\n", "--- attempt 3 ---\n", "c\n", "d\n"]  # the second wrote nothing
    shown = {None: 5, 0: 0, 1: 1, 2: 2, 3: 4, 5: 5}[last]
    query = LogQuery(should_tail=follow, last=last, attempts=True)
    assert lines_of_attempts(clients, query) == lines[len(lines) - shown :]


def test_the_rest_of_a_skipped_attempt_has_no_mark(clients: Clients, logs: LogsDouble) -> None:
    begun, waiting = (LogStream(clients, GROUP, name, mark="mark\n") for name in "ab")
    logs.put("a", (1, "skipped"))
    logs.put("b")
    assert _read_last([begun, waiting], 0, follow=True) == []
    logs.put("a", (2, "rest"))
    logs.put("b", (3, "first"))
    assert [*begun.lines(), *waiting.lines()] == ["rest\n", "mark\n", "first\n"]
