"""Conformance tests of commands, ports and files inside replicas."""

from __future__ import annotations

import io
import os
import signal
import socket
import tarfile
import threading
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import pytest

from torchx_runner import Runner
from torchx_specs import TorchXError, UnknownAppException
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.sessions import (
    NotListeningError,
    NotSupportedError,
    ProgramNotFoundError,
    ReplicaNotRunningError,
    Session,
    TerminalSize,
)
from torchx_testing.scheduler_cases.fixtures import SchedulerFixtures

_MEGABYTES = 10
_BYTES = b"a\0\xff\n"
_HOSTILE = 'it\'s "$HOME" \\ \t é\nnext'
_SERVE = """\
port=%d
echo served > %s
for python in python3 python; do
    command -v $python > /dev/null && exec $python -m http.server --bind 0.0.0.0 $port
done
command -v httpd > /dev/null && exec httpd -f -p $port -h .
exec perl -MIO::Socket::INET -e '
    $s = IO::Socket::INET->new(LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;
    while ($c = $s->accept) {
        while (<$c>) { last if /^\\r/ }
        print $c "HTTP/1.0 200 OK\\r\\n\\r\\nserved\\n";
        close $c;
    }' $port
"""


class Result(NamedTuple):
    """The result of a session.

    Attributes:
        code: The exit code of the command.
        out: Standard output.
        err: Standard error.
    """

    code: int
    out: bytes
    err: bytes


def communicate(session: Session, data: bytes | None = None) -> Result:
    """Return the result of a session.

    Args:
        session: The session, which is closed.
        data: Standard input of the command; None if the command gets none.
    """
    chunks: dict[Stream, list[bytes]] = {Stream.STDOUT: [], Stream.STDERR: []}

    def send() -> None:
        session.write(data or b"")
        session.close_stdin()

    thread = threading.Thread(target=send, daemon=True)
    with session:
        if data is not None:
            thread.start()
        for stream, chunk in session.output():
            chunks[stream].append(chunk)
        out, err = (b"".join(parts) for parts in chunks.values())
        return Result(session.wait(), out, err)


class SessionCases(SchedulerFixtures):
    """The tests of a scheduler's ``app_sessions``.

    Attributes:
        session_port: A port that an app may listen on; 0 finds a free port of this machine.
    """

    session_port: ClassVar[int] = 0

    @pytest.fixture
    def inside(self, runner: Runner, cfg: dict[str, Any]) -> Inside:
        """Return the helper of the tests, which skips a test if the scheduler has no sessions."""
        return Inside(self, runner, cfg)

    @pytest.mark.gate
    def test_a_session_returns_exit_code_and_bytes(self, inside: Inside) -> None:
        handle = inside.submit()
        script = "printf 'a\\000\\377\\n'; printf 'b\\n' >&2; exit 7"
        assert inside.run(handle, script) == Result(7, b"a\0\xff\n", b"b\n")
        assert inside.run(handle, "exit 0") == Result(0, b"", b"")
        assert inside.run(handle, "kill -9 $$").code == 128 + signal.SIGKILL

    def test_a_session_has_the_replicas_environment_and_directory(self, inside: Inside) -> None:
        name = _new_name()
        handle = inside.submit(f"touch {name}", env={"SESSION_VALUE": _HOSTILE})
        # The job may not have created the file yet. The session removes the file, because the
        # directory may be the user's own.
        wait = f"until [ -e {name} ]; do sleep 0.1; done"
        found = inside.run(handle, f'{wait}; ls {name} && printf %s "$SESSION_VALUE"; rm {name}')
        assert (found.code, found.out.decode()) == (0, f"{name}\n{_HOSTILE}")

    def test_a_session_passes_binary_data_both_ways(self, inside: Inside) -> None:
        handle = inside.submit()
        data = os.urandom(_MEGABYTES << 20)
        code, out, err = inside.run(handle, "cat", data)
        assert (code, len(out), err) == (0, len(data), b"")
        assert out == data

    def test_a_session_without_input_has_an_empty_one(self, inside: Inside) -> None:
        assert inside.run(inside.submit(), "cat; echo end").out == b"end\n"

    def test_a_signal_ends_a_session(self, inside: Inside) -> None:
        handle = inside.submit()
        session = inside.open(handle, ["sh", "-c", "echo ready; exec sleep 300"])
        with session:
            output = session.output()
            assert next(output)[1] == b"ready\n"
            session.send_signal(signal.SIGTERM)
            assert list(output) in ([], [(Stream.STDERR, b"Terminated\n")])
            assert session.wait() == 128 + signal.SIGTERM

    def test_a_terminal_has_a_size_that_changes(self, inside: Inside) -> None:
        handle = inside.submit()
        # Some services set the size after the start of the command.
        script = (
            "test -t 0 && test -t 1 || exit 9; wait() {"
            ' until [ "$(stty size)" = "$1" ]; do sleep 0.1; done; echo "size $1"; };'
            " wait '33 91'; wait '40 120'; read line; echo got $line; exit 3"
        )
        with inside.open(handle, ["sh", "-c", script], TerminalSize(91, 33)) as session:
            seen = b""
            output = session.output()
            while b"size 33 91" not in seen:
                seen += next(output)[1]
            session.resize(TerminalSize(120, 40))
            session.write(b"line\r")
            for _, data in output:
                seen += data
            assert b"size 40 120\r\n" in seen
            assert b"got line\r\n" in seen
            assert session.wait() == 3

    def test_a_missing_program_is_an_error(self, inside: Inside) -> None:
        handle = inside.submit()
        try:
            code, out, err = communicate(inside.open(handle, ["/no/such/program"]))
        except ProgramNotFoundError as e:
            code, out, err = e.exit_code, b"", str(e).encode()
        assert code == 127
        assert b"/no/such/program" in out + err

    def test_no_session_in_a_replica_that_has_ended(self, inside: Inside) -> None:
        handle = inside.submit("exit 0")
        inside.suite.finish(inside.runner, handle)
        with pytest.raises(ReplicaNotRunningError) as caught:
            inside.runner.open_session(handle, "main", 0, ["true"])
        assert "\n" not in str(caught.value)
        with pytest.raises((ReplicaNotRunningError, NotSupportedError)):
            inside.runner.open_port(handle, "main", 0, 80)

    def test_no_session_in_an_unknown_replica(self, inside: Inside) -> None:
        handle = inside.submit()
        inside.run(handle, "true")
        for role, k in (("main", 1), ("mian", 0), ("../main", 0), ("main", -1)):
            with pytest.raises(TorchXError, match=r"has no (role|replica)"):
                inside.runner.open_session(handle, role, k, ["true"])
        with pytest.raises(UnknownAppException):
            inside.runner.open_session(f"{handle.rpartition('/')[0]}/4711", "main", 0, ["true"])

    def test_files_of_a_replica_are_copied(self, inside: Inside) -> None:
        self.needs("archives")
        handle = inside.submit()
        name = _new_name()
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w") as tar:
            header = tarfile.TarInfo(name)
            header.size = len(_BYTES)
            tar.addfile(header, io.BytesIO(_BYTES))
        folder = inside.run(handle, "pwd").out.decode().rstrip("\n")
        inside.runner.write_archive(handle, "main", 0, folder, iter([written.getvalue()]))
        assert inside.run(handle, f"cat {name}").out == _BYTES
        chunks = inside.runner.read_archive(handle, "main", 0, f"{folder}/{name}")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            [header] = tar.getmembers()
            content = tar.extractfile(header)
            assert header.name == name
            assert content is not None
            assert content.read() == _BYTES
        inside.run(handle, f"rm {name}")

    def test_a_port_of_a_replica(self, inside: Inside) -> None:
        self.needs("ports")
        port = self.session_port or _free_port()
        page = _new_name()
        handle = inside.submit(_SERVE % (port, page))
        inside.run(handle, "true")

        def request() -> bytes:
            with inside.runner.open_port(handle, "main", 0, port) as connection:
                connection.settimeout(inside.suite.patience)
                connection.sendall(f"GET /{page} HTTP/1.0\r\n\r\n".encode())
                return b"".join(iter(lambda: connection.recv(1 << 16), b""))

        answer = self.until(request, f"{handle} does not listen on {port}", NotListeningError)
        inside.run(handle, f"rm {page}")
        assert answer.startswith(b"HTTP/1.")
        assert answer.endswith(b"\r\n\r\nserved\n")
        with pytest.raises(NotListeningError, match=f"port {port + 1} "):
            # a connection may succeed before the refusal is known
            inside.runner.open_port(handle, "main", 0, port + 1).recv(1)


class Inside:
    """Runs commands in the replicas of an app of a suite.

    Args:
        suite: The suite.
        runner: The runner.
        cfg: The options of each submission.
    """

    def __init__(self, suite: SessionCases, runner: Runner, cfg: dict[str, Any]) -> None:
        self.suite = suite
        self.runner = runner
        self._cfg = cfg

    def submit(self, script: str = ":", **fields: Any) -> str:
        """Submit an app whose replica runs a script and then sleeps; return the app's handle."""
        self.suite.needs("exec")
        role = self.suite.sh(f"{script}\nsleep 300", **fields)
        return self.suite.started(self.runner, self._cfg, role)

    def run(self, handle: str, script: str, data: bytes | None = None) -> Result:
        """Run a shell script in the replica ``main/0``, once the replica runs."""
        return communicate(self.open(handle, ["sh", "-c", script], stdin=data is not None), data)

    def open(
        self,
        handle: str,
        command: Sequence[str],
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Open a session in the replica ``main/0``, once the replica runs.

        Args:
            handle: The app.
            command: The command.
            tty: The size of the session's terminal; None means no terminal.
            stdin: Whether the command gets standard input without a terminal.
        """
        stdin = stdin or tty is not None
        return self.suite.until(
            lambda: self.runner.open_session(handle, "main", 0, command, tty=tty, stdin=stdin),
            f"the replica main/0 of {handle} does not run",
            ReplicaNotRunningError,
        )


def _new_name() -> str:
    """Return a file name that no other test uses."""
    return f"torchx-conformance-{os.urandom(4).hex()}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])
