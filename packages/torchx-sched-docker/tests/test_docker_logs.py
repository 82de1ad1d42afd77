"""The log reader, on an engine that is a fake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import urllib3.exceptions

from torchx_sched_docker import logs
from torchx_sched_docker.logs import STDERR, STDOUT, ContainerLog, nanoseconds
from torchx_sched_docker.states import app_state, reason_of, replica_state
from torchx_specs import AppState

BOTH = frozenset({STDOUT, STDERR})


def entry(output: int, at: int, text: str) -> tuple[int, int, str]:
    return output, at, text


def frame(output: int, at: int, text: str) -> bytes:
    body = f"2026-01-01T00:00:{at // 10:02}.{at % 10}00000000Z {text}".encode()
    return bytes([output, 0, 0, 0]) + len(body).to_bytes(4, "big") + body


class FakeEngine:
    """An engine with one container's log; connections break after so many bytes."""

    timeout = 1

    def __init__(self, entries: list[tuple[int, int, str]], breaks: list[int]) -> None:
        self.entries = entries
        self.breaks = breaks
        self.api = self

    def inspect_container(self, identity: str) -> dict[str, Any]:
        status = "running" if self.breaks else "exited"
        state = {"Status": status, "ExitCode": 0}
        return {"Name": "/x", "Config": {"Tty": False}, "State": state}

    def _url(self, path: str, identity: str) -> str:
        return path.format(identity)

    def _raise_for_status(self, response: Any) -> None:
        pass

    def _get(self, url: str, params: dict[str, Any], **kwargs: Any) -> Any:
        since = float(params.get("since", 0))
        base = nanoseconds(b"2026-01-01T00:00:00Z") / 1e9
        data = b"".join(
            frame(*e)
            for e in self.entries
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
    entry(STDOUT, 0, "one\n"),
    entry(STDERR, 0, "err"),
    entry(STDOUT, 0, "two\n"),
    entry(STDERR, 1, "or\n"),
    entry(STDOUT, 1, "x" * 50),
    entry(STDOUT, 2, "x" * 50 + "\n"),
    entry(STDOUT, 2, "two\n"),
    entry(STDOUT, 3, "no newline"),
]
LINES = ["one\n", "two\n", "error\n", "x" * 100 + "\n", "two\n", "no newline"]


def read(engine: Any, follow: bool, outputs: frozenset[int] = BOTH) -> list[str]:
    return list(ContainerLog(engine, "id", outputs, sleep=lambda s: None).lines(follow))


@pytest.mark.parametrize("size", range(0, 400, 13))
def test_no_line_is_lost_doubled_or_cut_wherever_the_connection_breaks(size: int) -> None:
    assert read(FakeEngine(ENTRIES, [size, size + 29, 10]), follow=True) == LINES


def test_outputs_apart() -> None:
    engine: Any = FakeEngine(ENTRIES, [])
    assert read(engine, False, frozenset({STDERR})) == ["error\n"]
    assert read(engine, False, frozenset({STDOUT})) == [x for x in LINES if x != "error\n"]


def test_an_engine_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PATIENCE", -1.0)
    engine: Any = FakeEngine(ENTRIES, [0])
    with pytest.raises(Exception, match="does not answer") as caught:
        read(engine, follow=True)
    assert getattr(caught.value, "exit_code", None) == 3


def test_times_are_exact() -> None:
    when = datetime(2026, 1, 1, 0, 0, 0, 123457, tzinfo=timezone.utc)
    exact = nanoseconds(b"2026-01-01T00:00:00.123457Z")
    assert logs._since_1970(when) == exact
    assert logs._since_1970(when.astimezone().replace(tzinfo=None)) == exact


def test_states() -> None:
    assert replica_state("exited", 0, "x") == AppState.SUCCEEDED
    assert replica_state("exited", 1, "x") == AppState.FAILED
    assert replica_state("exited", 0, "x_cancelled") == AppState.CANCELLED
    assert replica_state("running", None, "x_cancelled") == AppState.RUNNING
    assert replica_state("created", None, "x_cancelled") == AppState.CANCELLED
    assert replica_state("new in some release", None, "x") == AppState.UNKNOWN
    done, failed, runs = AppState.SUCCEEDED, AppState.FAILED, AppState.RUNNING
    assert app_state([done, done]) == done
    assert app_state([done, failed]) == failed
    assert app_state([failed, AppState.CANCELLED]) == AppState.CANCELLED
    assert app_state([done, AppState.PENDING, runs]) == runs
    assert app_state([done, AppState.PENDING, AppState.SUBMITTED]) == AppState.SUBMITTED


def test_reasons() -> None:
    def reason(name: str = "/x", **state: Any) -> str:
        attrs = {"Name": name, "State": state, "HostConfig": {"Memory": 16 << 20}}
        return reason_of(attrs)

    assert reason(Status="exited", ExitCode=0) == ""
    assert reason(Status="exited", ExitCode=137) == "exit code 137 (SIGKILL)"
    assert "16 MB" in reason(Status="exited", ExitCode=137, OOMKilled=True)
    assert reason(Status="created", ExitCode=127, Error="no\nsuch file") == "no such file"
    assert reason("/x_cancelled", Status="exited", ExitCode=143).startswith("cancelled")
