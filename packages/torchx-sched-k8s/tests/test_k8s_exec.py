"""Tests of the end of commands in pods, with a stub in place of the WebSocket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx_sched_k8s import sessions
from torchx_specs.errors import BackendError

_FAILED = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


class StubSocket:
    """Returns the given messages, and then raises the error of a connection that was reset."""

    messages: list[tuple[int, bytes]] = []

    def __init__(self, *_: Any) -> None:
        self._left = list(self.messages)

    def receive(self) -> tuple[int, bytes]:
        if not self._left:
            raise BackendError("cannot run 'head': connection reset by peer")
        return self._left.pop(0)

    def close(self) -> None:
        pass


def run(monkeypatch: pytest.MonkeyPatch, *messages: tuple[int, bytes]) -> tuple[list[bytes], int]:
    """Return the output and the exit code of a command whose connection has these messages."""
    monkeypatch.setattr(StubSocket, "messages", list(messages))
    monkeypatch.setattr(sessions, "ChannelSocket", StubSocket)
    cluster: Any = None
    session = sessions.PodExec(cluster, "default", "pod", "main", ["head"], None, True)
    output = [data for _, data in session.output()]
    return output, session.wait()


def test_a_reset_after_the_exit_code_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    status = (3, json.dumps(_FAILED).encode())
    assert run(monkeypatch, (1, b"line\n"), status) == ([b"line\n"], 3)


def test_a_reset_before_the_exit_code_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match="reset by peer"):
        run(monkeypatch, (1, b"line\n"))
