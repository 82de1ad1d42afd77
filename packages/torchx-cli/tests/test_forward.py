"""Tests of how ``torchx forward`` ends."""

from __future__ import annotations

import socket

import pytest

from torchx_cli.commands.inside.forward import _Forwarding, _listen
from torchx_cli.commands.inside.targets import Target
from torchx_runner import Runner
from torchx_specs import AppState, AppStatus
from torchx_specs.schedulers.sessions import ReplicaNotRunningError


class EndedReplica(Runner):
    """A double: a runner whose app runs, but whose replica main/1 has ended."""

    def __init__(self) -> None:
        super().__init__("test", {})

    def status(self, app_handle: str) -> AppStatus | None:
        return AppStatus(AppState.RUNNING)

    def open_port(self, app_handle: str, role_name: str, k: int, port: int) -> socket.socket:
        raise ReplicaNotRunningError(f"{role_name}/{k} has ended")


def test_a_connection_to_an_ended_replica_ends_the_command_while_the_app_runs() -> None:
    with EndedReplica() as runner, _listen("127.0.0.1", 0) as listener:
        forwarding = _Forwarding(runner, Target("x://s/app", "main", 1))
        forwarding.start(listener, 80)
        with (
            socket.create_connection(listener.getsockname(), 60),
            pytest.raises(ReplicaNotRunningError, match=r"^main/1 has ended$") as caught,
        ):
            forwarding.wait()
    assert caught.value.exit_code == 1
