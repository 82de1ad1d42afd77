"""Connections to real servers: one for all clients, cuts, refusals, prompts, noisy shells."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sshd as service
from ssh_proxy import Proxy

from patience import wait_for
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.errors import HostError, HostUnreachableError
from torchx_kit.hosts.operations import ReadFiles, Run

PROGRAM = """\
import sys
from torchx_host_ssh.host import SshHost
host = SshHost(sys.argv[1])
print(host.run(["echo", "connected"]).stdout, end="", flush=True)
sys.stdin.read()
"""


def connections(machines: Path, name: str = "bash") -> int:
    """Return how many connections a server has authenticated."""
    return (machines / f"{name}.out").read_text().count("Accepted publickey")


@pytest.mark.gate
def test_clients_share_one_connection(machines: Path, connect: Callable[[str], SshHost]) -> None:
    before = connections(machines)
    first, second = connect("bash"), connect("bash")
    assert first.user() == second.user() == service.user_of(machines, "bash")
    first.close()
    assert first.run(["pwd"]).stdout == f"{service.home_of(machines, 'bash')}\n"
    assert connections(machines) == before + 1


@pytest.mark.gate
def test_many_clients_wait_and_open_no_second_connection(
    machines: Path, connect: Callable[[str], SshHost]
) -> None:
    before = connections(machines)
    connect("bash").user()  # keeps the connection open, and closes it after the test
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(11)
    ]
    # A client that waits ends after the others, so all of them end in some order.
    ends = [threading.Thread(target=one.communicate, args=("",)) for one in clients]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join()
    assert [one.returncode for one in clients] == [0] * 11
    assert connections(machines) == before + 1


@pytest.mark.gate
def test_a_cut_log_is_followed_without_loss(
    connect: Callable[[str], SshHost], alias: Callable[..., str], proxy: Callable[..., Proxy]
) -> None:
    cutter = proxy()
    writer, reader = connect("bash"), connect(alias(Port=cutter.port))
    path = writer.resolve("log")
    script = (
        'for k in $(seq 200); do printf "line $k"; sleep 0.01; echo; done >> "$1"; touch "$1.e"'
    )
    thread = threading.Thread(target=writer.run, args=(["sh", "-c", script, "sh", path],))
    thread.start()
    found: list[str] = []
    for line in reader.follow([path], lambda: writer.exists(f"{path}.e"), check_every=0.1):
        found.append(line)
        if len(found) % 40 == 0:
            cutter.cut()
    thread.join()
    assert found == [f"line {k}\n" for k in range(1, 201)]
    writer.remove_files([path, f"{path}.e"])


@pytest.mark.gate
def test_a_command_that_was_cut_is_not_repeated(
    connect: Callable[[str], SshHost], alias: Callable[..., str], proxy: Callable[..., Proxy]
) -> None:
    cutter = proxy()
    other, host = connect("bash"), connect(alias(Port=cutter.port))
    path = other.resolve("runs")
    errors: list[HostUnreachableError] = []

    def run() -> None:
        try:
            host.run(["sh", "-c", 'echo run >> "$1"; sleep 60', "sh", path])
        except HostUnreachableError as e:
            errors.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: other.exists(path))
    cutter.cut()
    thread.join()
    assert "broke" in str(errors[0])
    assert host.run(["cat", path]).stdout == "run\n"
    other.remove_files([path])


def test_a_slow_connection_needs_one_round_trip_for_a_batch(
    connect: Callable[[str], SshHost], alias: Callable[..., str], proxy: Callable[..., Proxy]
) -> None:
    slow = proxy(0.075)
    host = connect(alias(Port=slow.port))
    home = host.resolve()
    results = host.batch([*[Run(["echo", str(k)]) for k in range(50)], ReadFiles(home, [".*rc"])])
    assert [one.stdout for one in results[:50]] == [f"{k}\n" for k in range(50)]  # type: ignore[union-attr]


def test_a_refused_key_is_one_clear_line(
    machines: Path, connect: Callable[[str], SshHost], alias: Callable[..., str]
) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(machines / "other")], check=True
    )
    host = connect(
        alias(IdentityFile=machines / "other", IdentitiesOnly="yes", IdentityAgent="none")
    )
    # The option is in addition to the key of the machine, so the server must not accept that.
    (machines / "key").rename(machines / "hidden")
    try:
        with pytest.raises(
            HostError, match=r"cannot connect to \w+: .*Permission denied"
        ) as caught:
            host.user()
    finally:
        (machines / "hidden").rename(machines / "key")
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, HostUnreachableError)


def test_a_changed_host_key_is_refused(
    machines: Path, connect: Callable[[str], SshHost], alias: Callable[..., str]
) -> None:
    known = machines / "changed_hosts"
    known.write_text(f"changed {(machines / 'key.pub').read_text()}")
    host = connect(alias(HostKeyAlias="changed", UserKnownHostsFile=known))
    with pytest.raises(HostError, match="IDENTIFICATION HAS CHANGED") as caught:
        host.user()
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, HostUnreachableError)
    assert known.read_text() == f"changed {(machines / 'key.pub').read_text()}"


def test_an_unknown_host_and_a_closed_port_are_told_apart(
    connect: Callable[[str], SshHost], alias: Callable[..., str]
) -> None:
    with pytest.raises(HostError, match="Could not resolve hostname"):
        connect(alias(HostName="no-such-host.invalid")).user()
    with pytest.raises(HostUnreachableError, match="Connection refused"):
        connect(alias(Port=service.free_port())).user()


def test_the_terminal_gets_the_questions_of_ssh(machines: Path, alias: Callable[..., str]) -> None:
    known = machines / "asked_hosts"
    name = alias(HostKeyAlias="asked", UserKnownHostsFile=known, StrictHostKeyChecking="ask")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, name])  # noqa: S606
    shown = b""
    while b"(yes/no" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"yes\n")
    while b"connected" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert known.read_text().startswith("asked ssh-ed25519")
    SshHost(name).ssh.disconnect()


def test_without_a_terminal_ssh_asks_nothing(
    machines: Path, connect: Callable[[str], SshHost], alias: Callable[..., str]
) -> None:
    known = machines / "never_asked_hosts"
    name = alias(HostKeyAlias="never", UserKnownHostsFile=known, StrictHostKeyChecking="ask")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert "Host key verification failed" in done.stderr
    assert not known.exists() or known.read_text() == ""


def test_no_process_stays_on_the_host(machines: Path, connect: Callable[[str], SshHost]) -> None:
    host = connect("bash")
    agent = host.run(["sh", "-c", "echo $PPID"]).stdout.strip()
    host.close()
    wait_for(lambda: not Path(f"/proc/{agent}").exists())
