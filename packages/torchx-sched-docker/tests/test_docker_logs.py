"""Tests of the log reader, with a fake engine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
import urllib3.exceptions

from manual_clock import ManualClock
from torchx_kit.times import parse_rfc3339
from torchx_sched_docker.logs.container_log import STDERR, STDOUT, ContainerLog
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.logs import LogQuery


def frame(stream: int, at: int, text: str) -> bytes:
    body = f"2026-01-01T00:00:{at // 10:02}.{at % 10}00000000Z {text}".encode()
    return bytes([stream, 0, 0, 0]) + len(body).to_bytes(4, "big") + body


class FakeEngine:
    """An engine with the log of one container.

    Args:
        entries: Stream, time in tenths of a second, and text of each entry.
        breaks: After how many bytes each connection of a follower breaks. The container runs until
            no number is left.
    """

    timeout = 1

    def __init__(self, entries: list[tuple[int, int, str]], breaks: list[int]) -> None:
        self.entries = entries
        self.breaks = breaks
        self.written = len(entries)
        self.requests: list[dict[str, Any]] = []
        self.api = self

    def inspect_container(self, container: str) -> dict[str, Any]:
        status = "running" if self.breaks else "exited"
        state = {"Status": status, "ExitCode": 0}
        return {"Name": "/x", "Config": {"Tty": False}, "State": state}

    def _url(self, path: str, container: str) -> str:
        return path.format(container)

    def _raise_for_status(self, response: Any) -> None:
        pass

    def _get(self, url: str, params: dict[str, Any], **kwargs: Any) -> Any:
        self.requests.append(params)
        since = float(params.get("since", 0))
        # Like the Docker Engine, count the entries before selecting streams and times.
        entries = self.entries[: self.written]
        if params["tail"] != "all":
            entries = entries[max(0, len(entries) - int(params["tail"])) :]
        base = parse_rfc3339(b"2026-01-01T00:00:00Z") / 1e9
        data = b"".join(
            frame(*e)
            for e in entries
            if (since == 0 or base + e[1] / 10 >= since - 1e-6)
            and params["stdout" if e[0] == STDOUT else "stderr"]
        )
        cut = self.breaks.pop(0) if params["follow"] else None

        class Raw:
            def stream(self, size: int, decode_content: bool) -> Iterator[bytes]:
                whole = data if cut is None else data[:cut]
                for start in range(0, len(whole), 7):
                    yield whole[start : start + 7]
                if cut is not None:
                    raise urllib3.exceptions.ProtocolError("closed")

        class Response:
            raw = Raw()
            close = staticmethod(lambda: None)

        return Response()


ENTRIES = [
    (STDOUT, 0, "one\n"),
    (STDERR, 0, "err"),
    (STDOUT, 0, "two\n"),
    (STDERR, 1, "or\n"),
    (STDOUT, 1, "x" * 50),
    (STDOUT, 2, "x" * 50 + "\n"),
    (STDOUT, 2, "two\n"),
    (STDOUT, 3, "no newline"),
]
LINES = ["one\n", "two\n", "error\n", "x" * 100 + "\n", "two\n", "no newline"]


def read(engine: Any, **query: Any) -> list[str]:
    clock = ManualClock()
    log = ContainerLog(engine, "id", LogQuery(**query), sleep=clock.sleep, clock=clock)
    return list(log.lines())


@pytest.mark.parametrize("size", range(0, 400, 13))
def test_follower_yields_each_line_once_wherever_the_connection_breaks(size: int) -> None:
    assert read(FakeEngine(ENTRIES, [size, size + 29, 10]), should_tail=True) == LINES


def test_streams_can_be_read_separately() -> None:
    engine: Any = FakeEngine(ENTRIES, [])
    assert read(engine, streams=Stream.STDERR) == ["error\n"]
    assert read(engine, streams=Stream.STDOUT) == [x for x in LINES if x != "error\n"]


def test_follower_raises_if_the_engine_stays_unreachable() -> None:
    engine: Any = FakeEngine(ENTRIES, [0] * 100)
    with pytest.raises(Exception, match="does not answer") as caught:
        read(engine, should_tail=True)
    assert getattr(caught.value, "exit_code", None) == 3


@pytest.mark.parametrize("status", [400, 404, 500])
def test_follower_ends_quietly_only_if_the_container_was_deleted(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inspect_container(self: Any, container: str) -> dict[str, Any]:
        response: Any = SimpleNamespace(status_code=status)
        raise docker.errors.APIError("refused", response, "refused")

    monkeypatch.setattr(FakeEngine, "inspect_container", inspect_container)
    if status == 404:
        assert read(FakeEngine(ENTRIES, [0]), should_tail=True) == []
    else:
        with pytest.raises(BackendError, match="cannot read the log of id: refused"):
            read(FakeEngine(ENTRIES, [0]), should_tail=True)


def random_entries(seed: int) -> list[tuple[int, int, str]]:
    """Return random entries of both streams; entries without a newline are parts of longer lines.

    Entries of one stream may separate the parts of the other stream's line. Only the line of the
    last entry may be incomplete.
    """
    choice = random.Random(seed)  # noqa: S311 - the same every time
    entries = []
    for at in range(choice.randrange(40)):
        stream = STDOUT if choice.random() < 0.7 else STDERR
        entries.append(
            (stream, at, f"{at} " * choice.randrange(3) + choice.choice(["\n", "\n", ""]))
        )
    lasts = {stream: (at, text) for stream, at, text in entries}
    for stream, (at, text) in lasts.items():
        if not text.endswith("\n") and at < len(entries) - 1:
            entries.append((stream, len(entries), "end\n"))
    return entries


@pytest.mark.parametrize("streams", Stream)
@pytest.mark.parametrize("seed", range(40))
def test_last_lines_are_the_end_of_the_log(seed: int, streams: Stream) -> None:
    entries = random_entries(seed)
    whole = read(FakeEngine(entries, []), streams=streams)
    for last in (0, 1, 2, 3, 10, 100):
        lines = read(FakeEngine(entries, []), streams=streams, last=last)
        assert lines == (whole[-last:] if last else [])


def test_last_lines_of_a_long_log_are_read_from_its_end() -> None:
    engine = FakeEngine([(STDOUT, at, f"{at}\n") for at in range(500)], [])
    assert read(engine, last=2) == ["498\n", "499\n"]
    assert [request["tail"] for request in engine.requests] == ["3"]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("last", [0, 1, 3, 100])
def test_a_follower_continues_after_the_last_lines(seed: int, last: int) -> None:
    entries = [(s, at, text.rstrip("\n") + f"{at}\n") for s, at, text in random_entries(seed)]
    written = len(entries) // 2
    engine = FakeEngine(entries, [37, 120])
    engine.written = written

    def inspect_container(container: str) -> dict[str, Any]:
        if engine.requests:  # The reader has already requested the last lines.
            engine.written = len(entries)
        return FakeEngine.inspect_container(engine, container)

    engine.inspect_container = inspect_container  # type: ignore[method-assign]
    expected = [text for _, _, text in entries[max(0, written - last) :]]
    assert read(engine, should_tail=True, last=last) == expected
