"""Tests of the names of hosts, of ssh's options, and of the folder of the sockets."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from torchx_host_ssh import openssh
from torchx_host_ssh.openssh import OpenSsh, control_folder
from torchx_kit.hosts.errors import HostError
from torchx_kit.hosts.lookup import find_host
from torchx_specs.errors import ConfigError, RequestError


@pytest.mark.parametrize("name", ["login1", "user@login1.example.com", "10.0.0.1", "a_b-c"])
def test_names_of_hosts(name: str) -> None:
    assert OpenSsh(name).name == name
    assert openssh.OpenSsh(name).argv()[-2:] == ["--", name]


@pytest.mark.parametrize(
    "name",
    ["", "-oProxyCommand=id", "a b", "a;id", "../up", "a/b", "@a", "user@-x", "a\n", "$(id)"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match="is not a valid name: use a host name"):
        OpenSsh(name)


def test_a_host_is_found_by_its_name() -> None:
    assert find_host("login1") is find_host("login1")
    assert repr(find_host("ssh:user@login1")) == "SshHost('user@login1')"
    with pytest.raises(RequestError, match="'shs:login1' is of an unknown kind; did you mean"):
        find_host("shs:login1")


class TestControlFolder:
    def test_it_is_private_and_in_the_runtime_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(openssh, "_LONGEST_FOLDER", 1000)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert control_folder() == f"{tmp_path}/torchx-ssh"
        assert (tmp_path / "torchx-ssh").stat().st_mode & 0o777 == 0o700

    def test_a_socket_has_a_short_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 80)))
        assert len(f"{control_folder()}/{'c' * 40}.{'t' * 16}") <= 107

    def test_a_folder_of_others_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(openssh, "_LONGEST_FOLDER", 1000)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        (tmp_path / "torchx-ssh").mkdir()
        (tmp_path / "torchx-ssh").chmod(0o777)
        with pytest.raises(ConfigError, match="other users can use it"):
            control_folder()


def test_a_missing_command_ssh_is_an_error(double: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match="there is no command ssh on PATH"):
        OpenSsh("login1").connect()


@pytest.mark.parametrize("first", range(3))
def test_a_further_client_waits_for_the_first_that_ends(
    double: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(openssh, "MOST_CLIENTS", 3)
    ssh = OpenSsh("login1")
    with contextlib.ExitStack() as others:
        clients = [ssh.client() for _ in range(3)]
        for k, client in enumerate(clients):
            client.__enter__()
            if k != first:
                others.push(client.__exit__)
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                clients[first].__exit__(None, None, None)

        monkeypatch.setattr(openssh.time, "sleep", pause)
        with ssh.client():
            assert len(pauses) == 2
