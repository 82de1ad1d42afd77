"""Tests of sessions of local processes, relays to ports, and marks of processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import wait_for
from tcp_server import TcpServer
from torchx_kit.sessions.ports import (
    MARK,
    bridge,
    connect_loopback,
    relay,
    relay_command,
    signal_command,
)
from torchx_kit.sessions.process import ProcessSession
from torchx_specs.errors import BackendError
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.sessions import (
    NotListeningError,
    ProgramNotFoundError,
    TerminalSize,
)


def sh(script: str, tty: TerminalSize | None = None, stdin: bool = False) -> ProcessSession:
    return ProcessSession(["sh", "-c", script], tty=tty, stdin=stdin)


def output_of(session: ProcessSession) -> bytes:
    return b"".join(data for _, data in session.output())


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Yield a port whose connections return all bytes after the end of the input."""

    def respond(client: socket.socket) -> None:
        client.sendall(b"".join(iter(lambda: client.recv(65536), b"")))

    with contextlib.closing(TcpServer(respond)) as server:
        yield server.port


def test_streams_are_separate_and_binary() -> None:
    with sh("printf 'a\\0\\377'; printf b >&2; exit 3") as session:
        assert sorted(session.output()) == [(Stream.STDERR, b"b"), (Stream.STDOUT, b"a\0\xff")]
        assert session.wait() == 3


def test_a_background_process_does_not_hold_a_session() -> None:
    with sh("sleep 300 & echo $!") as session:
        pid = int(output_of(session))
        assert session.wait() == 0
    os.kill(pid, signal.SIGKILL)


def test_input_that_the_command_does_not_read_is_no_error() -> None:
    with sh("exit 0", stdin=True) as session:
        session.write(b"x" * 1_000_000)
        session.close_stdin()
        session.write(b"after the end")
        assert output_of(session) == b""


def test_closing_ends_the_process_group() -> None:
    session = sh("trap '' HUP; sleep 300 & echo $!; wait")
    output = session.output()
    pid = int(next(output)[1])
    session.close()
    session.close()

    def has_ended() -> bool:
        state = Path(f"/proc/{pid}/stat")
        try:
            return state.read_text().split()[2] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_for(has_ended)


def test_a_terminal_passes_interrupts_as_keys() -> None:
    with sh("echo ready; exec sleep 300", TerminalSize(80, 24), stdin=True) as session:
        output = session.output()
        assert next(output)[1] == b"ready\r\n"
        session.write(b"\x03")
        assert b"".join(data for _, data in output) == b"^C"
        assert session.wait() == 130


@pytest.mark.parametrize("tty", [None, TerminalSize()])
def test_a_missing_program_is_an_error(tty: TerminalSize | None, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for command in ("/no/such/program", str(tmp_path)):
        with pytest.raises(ProgramNotFoundError, match="cannot run"):
            ProcessSession([command], tty=tty, stdin=True)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_relay_connects_with_python(echo_port: int) -> None:
    session = ProcessSession(relay_command(echo_port), tty=None, stdin=True)
    data = os.urandom(1 << 20)
    with relay(session, "main/0", echo_port) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: connection.recv(65536), b"")) == data


@pytest.mark.parametrize("is_open", [True, False])
def test_a_relay_connects_with_bash(tmp_path: Path, is_open: bool) -> None:
    for name in ("sh", "bash", "cat"):
        path = shutil.which(name)
        assert path is not None
        (tmp_path / name).symlink_to(path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not is_open:
            server.close()
        env = {"PATH": str(tmp_path), "LC_ALL": "C"}
        session = ProcessSession(relay_command(port), tty=None, stdin=True, env=env)
        if not is_open:
            with pytest.raises(NotListeningError, match=f"port {port} of main/0: .*refused"):
                relay(session, "main/0", port)
            return
        with relay(session, "main/0", port) as connection:
            other, _ = server.accept()
            with other:
                connection.sendall(b"ping")
                assert other.recv(10) == b"ping"
                other.sendall(b"pong")
                assert connection.recv(10) == b"pong"
            assert connection.recv(10) == b""


def test_a_relay_without_programs_says_so(tmp_path: Path) -> None:
    path = shutil.which("sh")
    assert path is not None
    (tmp_path / "sh").symlink_to(path)
    session = ProcessSession(relay_command(1), tty=None, stdin=True, env={"PATH": str(tmp_path)})
    with pytest.raises(NotListeningError, match="neither python nor bash"):
        relay(session, "main/0", 1)


def test_a_refused_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotListeningError, match=f"on port {port} of main/0"):
        connect_loopback(port, "main/0")


def test_a_bridge_ends_when_the_connection_breaks() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"first"
        raise BackendError("broken")

    closed = threading.Event()
    with bridge(chunks(), lambda data: None, lambda: None, closed.set) as connection:
        assert connection.recv(10) == b"first"
        assert connection.recv(10) == b""
    assert closed.wait(60)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_signal_reaches_only_marked_processes() -> None:
    script = "trap 'echo caught; exit 4' USR1; echo ready; while :; do sleep 0.1; done"
    sessions = []
    for mark in ("one", "another"):
        env = {**os.environ, MARK: mark}
        sessions.append(ProcessSession(["bash", "-c", script], tty=None, stdin=False, env=env))
    outputs = [session.output() for session in sessions]
    try:
        assert [next(output)[1] for output in outputs] == [b"ready\n"] * 2
        # The signal also ends `sleep`, so the shell runs its trap at once.
        subprocess.run(signal_command("one", signal.SIGUSR1), check=True)
        assert b"caught\n" in b"".join(data for _, data in outputs[0])
        assert sessions[0].wait() == 4
        assert sessions[1]._process.poll() is None
    finally:
        for session in sessions:
            session.close()
