"""Tests of the client of batch systems: its errors, warnings and retries."""

from __future__ import annotations

from typing import Any

import pytest

from patience import wait_for
from torchx_kit.batch.client import ClusterClient
from torchx_kit.batch.errors import BatchError, UnreachableError
from torchx_kit.hosts.api import CommandResult
from torchx_kit.hosts.errors import (
    CommandNotFoundError,
    HostError,
    HostRefusedError,
    HostUnreachableError,
)
from torchx_kit.hosts.local import LocalHost
from torchx_specs.errors import BackendError


class ScriptedHost(LocalHost):
    """A host that answers each command with the next of the given results and errors."""

    def __init__(self, *answers: CommandResult | Exception) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[list[str], float | None, dict[str, str | None]]] = []

    def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
        [(_, (argv, _, env, timeout))] = arguments[0]
        self.calls.append((argv, timeout, env))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [[answer.exit_code, answer.stdout.encode(), answer.stderr.encode()]]


class QueueClient(ClusterClient):
    not_installed = "no queue here: {error}"
    messages = {UnreachableError: ("controller is away",)}
    env = {"LC_ALL": "C"}
    command_env = {"list": {"TZ": "UTC0"}}
    empty_messages = ("no jobs",)


def client(*answers: CommandResult | Exception, patience: float = 60.0) -> QueueClient:
    host = ScriptedHost(*answers)
    slept: list[float] = []
    queue = QueueClient(host, timeout=7, patience=patience, sleep=slept.append)
    queue.slept = slept  # type: ignore[attr-defined]
    return queue


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_refused_connection_is_no_refused_submission_if_the_request_was_sent(
    is_cut: bool,
) -> None:
    cut = [HostUnreachableError("the connection to login1 broke")]
    refused = HostRefusedError("cannot connect to login1: Permission denied")
    queue = client(*(cut if is_cut else []), refused)
    queue.host.name = "login1"
    with pytest.raises(BatchError, match="Permission denied") as caught:
        queue.batch([queue.command(["submit"])], once="/record/submission")
    assert isinstance(caught.value, UnreachableError) == is_cut


def test_run_returns_standard_output() -> None:
    queue = client(CommandResult(0, "out", "warning"), CommandResult(0, "", ""))
    assert queue.run("submit", "-a") == "out"
    queue.batch([queue.command(["submit"], timeout=9, env={})])
    assert queue.host.calls == [  # type: ignore[attr-defined]
        (["submit", "-a"], 7, {"LC_ALL": "C"}),
        (["submit"], 9, {}),
    ]


def test_a_command_gets_its_own_variables() -> None:
    queue = client(CommandResult(0, "", ""), CommandResult(0, "", ""))
    queue.run("list")
    queue.batch([queue.command(["list"], env={})])
    assert [env for _, _, env in queue.host.calls] == [  # type: ignore[attr-defined]
        {"LC_ALL": "C", "TZ": "UTC0"},
        {"TZ": "UTC0"},
    ]


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (CommandResult(3, "out", "a  b\n\nc\na b\n"), BatchError, "list: a b; c"),
        (CommandResult(3, "out", ""), BatchError, "list: out"),
        (CommandResult(3, "", ""), BatchError, "list: exit code 3"),
        (CommandResult(1, "", "no jobs"), BatchError, "list: no jobs"),
        (
            CommandResult(1, "", "Controller is away"),
            UnreachableError,
            "list: Controller is away",
        ),
        (CommandNotFoundError("there is no list"), BatchError, "no queue here: there is no list"),
        (HostUnreachableError("no route"), UnreachableError, "no route"),
        (HostError("cannot run list"), BatchError, "cannot run list"),
    ],
)
def test_failures_become_errors_of_the_batch_system(
    answer: CommandResult | Exception, error: type[Exception], message: str
) -> None:
    with pytest.raises(BackendError) as caught:
        client(answer).run("list")
    assert (type(caught.value), str(caught.value)) == (error, message)


class TestIdempotentCommands:
    AWAY = CommandResult(1, "", "controller is away")

    def test_are_repeated_while_the_batch_system_is_unreachable(self) -> None:
        queue = client(self.AWAY, HostUnreachableError("no route"), CommandResult(0, "yes", ""))
        assert queue.run_idempotent("list") == "yes"
        assert queue.slept == [0.5, 1.0]  # type: ignore[attr-defined]

    def test_are_not_repeated_beyond_the_limit(self) -> None:
        with pytest.raises(UnreachableError):
            client(self.AWAY, patience=0.1).run_idempotent("list")

    def test_are_not_repeated_after_other_failures(self) -> None:
        queue = client(CommandResult(1, "", "wrong option"))
        with pytest.raises(BatchError, match="list: wrong option"):
            queue.run_idempotent("list")

    def test_that_find_nothing_return_their_output(self) -> None:
        assert client(CommandResult(255, "", "no jobs")).run_idempotent("list") == ""


def test_slow_command_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class SlowHost(ScriptedHost):
        def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
            wait_for(lambda: caplog.text)
            return super().request(name, *arguments)

    notice = "torchx_kit.batch.client.NOTICE_AFTER"
    monkeypatch.setattr(notice, 0.05)
    QueueClient(SlowHost(CommandResult(0, "", "")), patience=7).run("list")
    assert "list has not answered for 0.05 s" in caplog.text
    assert "an unreachable cluster is tried for 7 s" in caplog.text
    caplog.clear()
    monkeypatch.setattr(notice, 60.0)
    client(CommandResult(0, "", "")).run("list")
    assert caplog.text == ""
