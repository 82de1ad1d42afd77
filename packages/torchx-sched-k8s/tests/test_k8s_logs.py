"""Tests of the logs of replicas: each line is read once, despite several requests and pods."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from patience import wait_for
from torchx_sched_k8s import logs
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import NoClusterError
from torchx_sched_k8s.logs import PodLog, ReplicaLog
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_sched_k8s.status.pod_states import Pod, read_pod
from torchx_specs.errors import BackendError, RequestError, UnknownAppException
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.logs import LogQuery

# These names stand for classes of conftest.py, which tests cannot import.
ApiDouble = Any
Request = Any


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return the Status object with which an API server refuses a request."""
    return {"kind": "Status", "message": message, "reason": reason, "code": code}


LOG = "/pods/p/log"


def timestamped(*lines: tuple[str, str]) -> list[bytes]:
    return [f"2024-01-01T00:00:{at}Z {text}".encode() for at, text in lines]


class FileDouble:
    """A double of a log on a node; it responds with the lines from the requested second on.

    Attributes:
        lines: All lines, each with its time.
        written: How many lines the container has written so far.
        cut: How many bytes at the end of each response are lost.
    """

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.written = 0
        self.cut = 0

    def __call__(self, request: Request) -> tuple[int, bytes]:
        since = request.query.get("sinceTime", "")[:19].encode()
        written = self.lines[: self.written]
        if "tailLines" in request.query:  # like a node, count before leaving out lines by time
            written = written[max(0, len(written) - int(request.query["tailLines"])) :]
        wanted = [line for line in written if line[:19] >= since]
        data = b"".join(line + b"\n" for line in wanted)
        return 200, data[: len(data) - self.cut]


def reader(**query: Any) -> PodLog:
    return PodLog(Cluster(), "team", "p", "main", LogQuery(**query))


def replica_log(looks: Any, **query: Any) -> ReplicaLog:
    """Return a log whose replica has the next pods at each look, or always the same pods."""
    look = functools.partial(next, looks) if isinstance(looks, Iterator) else lambda: looks
    return ReplicaLog(Cluster(), "team", look, LogQuery(**query), sleep=lambda _: None)


def when(second: str) -> datetime:
    return datetime.fromisoformat(f"2024-01-01T00:00:{second}+00:00")


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("cut", [0, 1, 9])
def test_each_line_is_read_once_whatever_its_time(api: ApiDouble, step: int, cut: int) -> None:
    lines = timestamped(
        ("01.1", "a"),
        ("01.1", "a"),  # the same line twice
        ("01.1", "b"),
        ("02.000000001", "c"),
        ("01.9", "earlier, and written later"),
        ("02.5", ""),
        ("02.5", ""),
        ("02.5", "x y"),
        ("07", "much later"),
        ("06.99", "earlier again"),
        ("07", "much later"),
    )
    file = FileDouble(lines)
    api.answer("GET", LOG, file)
    log = reader()
    got: list[bytes] = []
    while file.written < len(lines):
        file.written = min(file.written + step, len(lines))
        file.cut = cut  # the connection is lost within a line
        got += log.read(follow=True)
    file.cut = 0
    got += log.read(follow=False)
    assert got == [line.partition(b" ")[2] + b"\n" for line in lines]
    assert list(log.read(follow=False)) == []


def test_a_second_request_starts_at_the_last_lines(api: ApiDouble) -> None:
    file = FileDouble(timestamped(*((f"{i:02}", str(i)) for i in range(60))))
    file.written = 60
    api.answer("GET", LOG, file)
    log = reader()
    assert len(list(log.read(follow=False))) == 60
    assert list(log.read(follow=False)) == []
    assert api.requests[-1].query["sinceTime"] == "2024-01-01T00:00:58Z"


def test_times_may_have_a_zone(api: ApiDouble) -> None:
    line = b"2024-01-01T02:00:00.5+02:00 text\n"
    api.answer("GET", LOG, (200, line))
    log = reader(since=when("00.400"))
    assert list(log.read(follow=False)) == [b"text\n"]
    assert list(log.read(follow=False)) == []
    assert api.requests[0].query["sinceTime"] == "2024-01-01T00:00:00Z"
    assert api.requests[1].query["sinceTime"] == "2024-01-01T02:00:00+02:00"


def test_since_and_until_are_exact(api: ApiDouble) -> None:
    file = FileDouble(timestamped(("01.1", "a"), ("01.2", "b"), ("01.3", "c"), ("01.4", "d")))
    file.written = 4
    api.answer("GET", LOG, file)
    assert list(reader(since=when("01.200"), until=when("01.400")).read(follow=False)) == [
        b"b\n",
        b"c\n",
    ]


def test_a_message_of_the_node_is_a_warning_and_no_line(
    api: ApiDouble, caplog: pytest.LogCaptureFixture
) -> None:
    api.answer("GET", LOG, (200, b"unable to retrieve container logs for containerd://abc"))
    log = reader()
    assert list(log.read(follow=False)) == []
    assert list(log.read(follow=False)) == []
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "unable to retrieve container logs for containerd://abc" in record.getMessage()


@pytest.mark.parametrize("rest", ["rest of a long line", "2024 is no time", ""])
def test_the_rest_of_an_earlier_line_is_skipped(api: ApiDouble, rest: str) -> None:
    """A node writes a line in parts of 16 KB, and only the first part has a time."""
    lines = timestamped(("01.9", "a long line and the " + rest), ("02.1", "next"))
    api.answer(
        "GET",
        LOG,
        (200, b"\n".join([*lines, b""])),
        (200, b"\n".join([rest.encode(), lines[1], b"2024-01-01T00:00:02.2Z new", b""])),
    )
    log = reader()
    assert list(log.read(follow=True)) == [f"a long line and the {rest}\n".encode(), b"next\n"]
    assert list(log.read(follow=True)) == [b"new\n"]
    api.answer("GET", LOG, (200, b"\n".join([rest.encode(), lines[1], b""])))
    assert list(reader(since=when("02")).read(follow=False)) == [b"next\n"]


def test_a_follower_pauses_if_the_node_cannot_follow(api: ApiDouble) -> None:
    api.answer("GET", LOG, (200, b"failed to create fsnotify watcher: too many open files"))
    pauses: list[float] = []

    def look() -> tuple[list[Pod], bool]:
        return (pods("running"), True) if len(pauses) < 6 else ([], False)

    query = LogQuery(should_tail=True)
    log = ReplicaLog(Cluster(), "team", look, query, sleep=pauses.append)
    assert list(log.lines()) == []
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[1] < pauses[2] < pauses[3]


def pods(*states: str) -> list[Pod]:
    names = {"waiting": "Pending", "running": "Running", "ended": "Failed"}
    return [
        read_pod(
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "main"}]},
                "status": {
                    "phase": names[state],
                    "containerStatuses": [
                        {
                            "name": "main",
                            "state": {"running": {}} if state == "running" else {},
                        }
                    ],
                },
            }
        )
        for state in states
    ]


def follow(looks: Iterable[tuple[list[Pod], bool]], **query: Any) -> list[str]:
    return list(replica_log(iter(looks), should_tail=True, **query).lines())


@pytest.mark.parametrize("follows", [True, False])
def test_a_closed_reader_closes_its_response_before_it_is_garbage(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    api.answer("GET", LOG, (200, b"\n".join(timestamped(("01", "one"), ("02", "two"), ("03", "")))))
    original = PodLog.read
    reads: list[Generator[bytes, None, None]] = []

    def read(self: PodLog, *args: Any, **named: Any) -> Generator[bytes, None, None]:
        reads.append(original(self, *args, **named))  # this reference keeps the generator alive
        return reads[-1]

    monkeypatch.setattr(PodLog, "read", read)
    state = "running" if follows else "ended"
    lines = replica_log((pods(state), follows), should_tail=follows).lines()
    assert next(lines) == "one\n"
    assert [inspect.getgeneratorstate(one) for one in reads] == [inspect.GEN_SUSPENDED]
    lines.close()
    assert [inspect.getgeneratorstate(one) for one in reads] == [inspect.GEN_CLOSED]


def test_a_follower_waits_and_continues_after_errors(api: ApiDouble) -> None:
    whole = b"".join(
        line + b"\n" for line in timestamped(("01", "one"), ("02", "two"), ("03", "3"))
    )
    busy = (503, status(503, "", "restarting"))
    api.answer(
        "GET",
        LOG,
        (400, status(400, "BadRequest", 'container "main" is waiting to start')),
        (200, whole[:30]),
        busy,
        None,
        (401, status(401, "Unauthorized", "Unauthorized")),
        (200, whole),
    )
    looks: list[tuple[list[Pod], bool]] = [([], True), (pods("waiting"), True)]
    looks += [(pods("running"), True)] * 4 + [(pods("ended"), False)]
    assert follow(looks) == ["one\n", "two\n", "3\n"]


def test_reading_continues_after_a_lost_connection(api: ApiDouble) -> None:
    whole = b"".join(line + b"\n" for line in timestamped(("01", "one"), ("02", "two")))
    busy = (503, status(503, "", "restarting"))
    expired = (401, status(401, "Unauthorized", "Unauthorized"))
    api.answer("GET", LOG, busy, None, expired, (200, whole))
    log = replica_log((pods("ended"), False))
    assert list(log.lines()) == ["one\n", "two\n"]
    api.answer("GET", LOG, (403, status(403, "Forbidden", "no logs for you")))
    with pytest.raises(BackendError, match="no logs for you"):
        list(log.lines())
    api.answer("GET", LOG, (404, status(404, "NotFound", "deleted")))
    assert list(log.lines()) == []


def test_a_follower_ends_when_the_pod_is_deleted(api: ApiDouble) -> None:
    line = timestamped(("01", "one"))[0] + b"\n"
    api.answer("GET", LOG, (200, line), (404, status(404, "NotFound", 'pods "p" not found')))
    looks: list[tuple[list[Pod], bool]] = [(pods("running"), True)] * 2 + [([], False)]
    assert follow(looks) == ["one\n"]


NODE = 'Get "https://n:10250/containerLogs/default/p/main": dial tcp: connect: no route to host'


@pytest.mark.parametrize("follows", [True, False])
def test_a_node_that_does_not_answer_is_said_at_once(
    api: ApiDouble, caplog: pytest.LogCaptureFixture, follows: bool
) -> None:
    line = timestamped(("01", "one"))[0] + b"\n"
    said: list[bool] = []
    looks = [(pods("running"), True), (pods("ended"), False)]
    log = replica_log(iter(looks) if follows else looks[1], should_tail=follows)
    log._sleep = lambda seconds: said.append("no route to host; retrying" in caplog.text)
    api.answer("GET", LOG, (500, status(500, "InternalError", NODE)), (200, line))
    assert list(log.lines()) == ["one\n"]
    assert said[0]
    assert caplog.text.count("retrying") == 1


def test_a_silent_node_is_named_before_its_first_response(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "NODE_SECONDS", 0.05)
    back = threading.Event()

    def answer(request: Request) -> tuple[int, bytes]:
        back.wait()
        return 200, timestamped(("01", "one"))[0] + b"\n"

    api.answer("GET", LOG, answer)
    log = PodLog(Cluster(), "team", "p", "main", LogQuery(), node="n1")
    lines: list[bytes] = []
    thread = threading.Thread(target=lambda: lines.extend(log.read(follow=True)), daemon=True)
    thread.start()
    wait_for(lambda: "node n1 does not answer: cannot read the log of p" in caplog.text)
    back.set()
    thread.join()
    assert lines == [b"one\n"]


def test_a_silent_container_is_not_a_silent_node(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logs, "NODE_SECONDS", 0.05)
    probed = threading.Event()

    def answer(request: Request) -> tuple[int, bytes]:
        if request.query.get("tailLines") == "0":
            probed.set()
            return 200, b""
        probed.wait()
        return 200, timestamped(("01", "one"))[0] + b"\n"

    api.answer("GET", LOG, answer)
    log = PodLog(Cluster(), "team", "p", "main", LogQuery(), node="n1")
    assert list(log.read(follow=True)) == [b"one\n"]
    assert "does not answer" not in caplog.text


def test_all_followers_of_an_app_end_if_one_has_given_up(api: ApiDouble) -> None:
    line = timestamped(("01", "one"))[0] + b"\n"
    api.answer("GET", LOG, (200, line))
    cluster = Cluster()

    def follower(look: Any) -> Iterator[str]:
        query = LogQuery(should_tail=True)
        return ReplicaLog(cluster, "team", look, query, sleep=lambda _: None).lines()

    def down() -> Any:
        raise NoClusterError("no answer from the cluster")

    other = follower(lambda: (pods("running"), True))
    assert next(other) == "one\n"
    with pytest.raises(NoClusterError, match="no answer"):
        list(follower(down))
    with pytest.raises(NoClusterError, match="no answer"):
        list(other)


def test_followers_go_on_if_one_of_them_got_an_answer(api: ApiDouble) -> None:
    line = timestamped(("01", "one"))[0] + b"\n"
    api.answer("GET", LOG, (200, line))
    cluster = Cluster()

    def looks() -> Iterator[Any]:
        cluster.outage.answered()  # another follower of the app
        yield NoClusterError("no answer from the cluster")
        yield pods("ended"), False

    left = looks()

    def look() -> Any:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    query = LogQuery(should_tail=True)
    log = ReplicaLog(cluster, "team", look, query, sleep=lambda _: None)
    assert list(log.lines()) == ["one\n"]


def test_one_lost_connection_is_not_said(api: ApiDouble, caplog: pytest.LogCaptureFixture) -> None:
    api.answer("GET", LOG, None, (200, timestamped(("01", "one"))[0] + b"\n"))
    assert follow([(pods("running"), True), (pods("ended"), False)]) == ["one\n"]
    assert "retrying" not in caplog.text


def test_a_follower_gives_up_after_the_limit(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_KUBERNETES_RETRY_SECONDS", "0.05")
    api.answer("GET", LOG, (503, status(503, "", "restarting")))
    with pytest.raises(BackendError, match="restarting"):
        follow([(pods("running"), True)] * 100_000)


def ended_app(*looks: tuple[list[Pod], bool]) -> Iterator[tuple[list[Pod], bool]]:
    yield from looks
    raise UnknownAppException("kubernetes://t/default:app-1")


def test_a_follower_of_a_deleted_app_fails(api: ApiDouble) -> None:
    line = timestamped(("01", "one"))[0] + b"\n"
    api.answer("GET", LOG, (200, line), (404, status(404, "NotFound", 'pods "p" not found')))
    lines = replica_log(ended_app(*[(pods("running"), True)] * 2), should_tail=True).lines()
    assert next(lines) == "one\n"
    with pytest.raises(UnknownAppException):
        next(lines)


def test_a_follower_that_has_read_everything_ends_with_the_app(api: ApiDouble) -> None:
    api.answer("GET", LOG, (200, timestamped(("01", "one"))[0] + b"\n"))
    looks = ended_app((pods("ended"), True))
    assert list(replica_log(looks, should_tail=True).lines()) == ["one\n"]


def test_a_replica_whose_log_ends_early_is_named_at_once(
    api: ApiDouble, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = create_scheduler("t")
    job = {
        "metadata": {"name": "app-1-main", "labels": {"torchx.pytorch.org/role-name": "main"}},
        "spec": {"completions": 2, "template": {"spec": {"containers": [{"name": "main"}]}}},
        "status": {},
    }
    api.answer("GET", "/jobs", {"items": [job]}, {"items": []})
    api.answer("GET", "/pods", {"items": []})
    lines = scheduler.log_iter("default:app-1", "main", 1, should_tail=True)
    scheduler._views.forget("default:app-1")
    with pytest.raises(UnknownAppException):
        list(lines)
    assert "the log of main/1 of default:app-1 ends early: unknown app" in caplog.text


def test_replicas_of_older_volcano_jobs_are_found_by_their_labels(api: ApiDouble) -> None:
    """In older releases, each replica was a task, whose only pod has the index 0."""
    labels = {"torchx.pytorch.org/role-name": "main", "torchx.pytorch.org/role-index": "0"}
    tasks = [
        {
            "name": f"main-{k}",
            "replicas": 1,
            "template": {"metadata": {"labels": {**labels, "torchx.pytorch.org/replica-id": k}}},
        }
        for k in "01"
    ]
    job = {"metadata": {"name": "app-1"}, "spec": {"tasks": tasks}, "status": {}}
    api.answer("GET", "/jobs", {"items": []})
    api.answer("GET", "/jobs/app-1", job)
    api.answer("GET", "/pods", {"items": []})
    assert list(create_scheduler("t").log_iter("default:app-1", "main", 1)) == []
    (found,) = [one.query for one in api.requests if one.path.endswith("/pods")]
    assert found["labelSelector"].endswith(",torchx.pytorch.org/replica-id=1")


@pytest.mark.parametrize("rotated", [True, False])
def test_a_follower_names_the_time_of_lines_that_rotation_took(
    api: ApiDouble, caplog: pytest.LogCaptureFixture, rotated: bool
) -> None:
    lines = timestamped(("01", "one"), ("02", "two"), ("09", "nine"), ("10", "ten"))
    first, second = lines[:2], lines[2:] if rotated else lines[1:]
    api.answer(
        "GET", LOG, *((200, b"".join(one + b"\n" for one in part)) for part in (first, second))
    )
    looks = [(pods("running"), True), (pods("ended"), False)]
    assert follow(looks) == ["one\n", "two\n", "nine\n", "ten\n"]
    assert ("may be missing: the node has rotated the log" in caplog.text) is rotated


def test_a_refusal_ends_a_follower(api: ApiDouble) -> None:
    api.answer("GET", LOG, (403, status(403, "Forbidden", "no logs for you")))
    with pytest.raises(BackendError, match="no logs for you"):
        follow([(pods("running"), True)] * 3)


def test_marks_show_where_attempts_begin(api: ApiDouble) -> None:
    for name in "abc":
        line = timestamped(("01", name))[0] + b"\n"
        api.answer("GET", f"/pods/{name}/log", (200, line))
    first, second, third = (replace(pods("ended")[0], name=name, uid=name) for name in "abc")
    both, later = ([first, second], True), ([second, third], False)  # the first pod is deleted
    lines = ["a\n", "--- attempt 2 ---\n", "b\n"]
    assert follow([both, later], attempts=True) == [*lines, "--- attempt 3 ---\n", "c\n"]
    assert list(replica_log(both, attempts=True).lines()) == lines
    assert list(replica_log(both).lines()) == ["a\n", "b\n"]
    for last, begin in ((1, 2), (2, 0), (3, 0)):
        assert list(replica_log(both, attempts=True, last=last).lines()) == lines[begin:], last


def test_one_stream_alone_is_refused() -> None:
    with pytest.raises(RequestError, match="in one log: omit the stream"):
        create_scheduler("t").log_iter("default:app-1", "main", 0, streams=Stream.STDERR)


TIMES = ("01.1", "01.2", "01.3", "02.000000001", "02.5", "02.6", "03", "03.1", "07", "07.5")


@pytest.mark.parametrize("last", [0, 1, 2, 5, 9, 10, 100])
def test_last_lines_are_the_end_of_the_log(api: ApiDouble, last: int) -> None:
    file = FileDouble(timestamped(*((at, f"line {at}") for at in TIMES)))
    file.written = len(TIMES)
    api.answer("GET", LOG, file)
    expected = [f"line {at}\n" for at in TIMES[max(0, len(TIMES) - last) :]]
    assert list(replica_log((pods("ended"), False), last=last).lines()) == expected


@pytest.mark.parametrize("last", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("written", range(len(TIMES)))
@pytest.mark.parametrize("cut", [0, 9])
def test_a_follower_continues_after_the_last_lines(
    api: ApiDouble, last: int, written: int, cut: int
) -> None:
    file = FileDouble(timestamped(*((at, f"line {at}") for at in TIMES)))
    file.written = written
    api.answer("GET", LOG, file)

    def look() -> Iterator[tuple[list[Pod], bool]]:
        yield pods("running"), True
        while file.written < len(TIMES):
            file.written += 1
            file.cut = cut  # the connection is lost within a line
            yield pods("running"), True
        file.cut = 0
        yield pods("ended"), False

    expected = [f"line {at}\n" for at in TIMES[max(0, written - last) :]]
    assert follow(look(), last=last) == expected


def test_last_lines_are_requested_by_tail_lines(api: ApiDouble) -> None:
    file = FileDouble(timestamped(*((f"{i:02}", str(i)) for i in range(60))))
    file.written = 60
    api.answer("GET", LOG, file)
    assert reader().read_last(2) == [b"58\n", b"59\n"]
    assert [request.query["tailLines"] for request in api.requests] == ["3"]


def test_last_lines_before_a_time_need_the_whole_log(api: ApiDouble) -> None:
    """The API counts lines that ``until`` leaves out."""
    file = FileDouble(timestamped(*((f"{i:02}", str(i)) for i in range(60))))
    file.written = 60
    api.answer("GET", LOG, file)
    assert reader(until=when("30")).read_last(2) == [b"28\n", b"29\n"]
    assert not any("tailLines" in request.query for request in api.requests)
