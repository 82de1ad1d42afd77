"""Starts commands in containers, connects to their ports, and copies files from and to them."""

from __future__ import annotations

import contextlib
import posixpath
import signal
import socket
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from docker.utils.socket import frames_iter

from torchx_kit.names.ids import random_id
from torchx_kit.retry import Backoff
from torchx_kit.sessions.ports import MARK, connect, refused, relay, relay_command, signal_command
from torchx_sched_docker.client import EngineError, engine_errors
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.sessions import (
    ProgramNotFoundError,
    ReplicaNotRunningError,
    Session,
    Sessions,
    TerminalSize,
)

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_sched_docker.scheduler import DockerScheduler

_STDERR = 2
_NOT_FOUND, _CONFLICT, _BAD_REQUEST = 404, 409, 400
# Exit codes of a command that the runtime could not start.
_NOT_STARTED = (126, 127)
_STATE_CREATED = ("created", "restarting")
# The bit of a symbolic link in the engine's description of a file (os.ModeSymlink of Go).
_GO_LINK = 1 << 27
_LINKS = 40
# How long a command may run after the end of its connection, in seconds.
_END_SECONDS = 10.0


class _ExecSession(Session):
    """A command that the engine runs in a container.

    Args:
        client: The client of the engine.
        container: Id of the container.
        command: The program and its arguments.
        tty: Size of the terminal that the command gets; None means pipes.
        stdin: Whether the command gets input.
    """

    def __init__(
        self,
        client: DockerClient,
        container: str,
        command: Sequence[str],
        tty: TerminalSize | None,
        stdin: bool,
    ) -> None:
        self._api: Any = client.api
        self._container = container
        self._command = list(command)
        self._has_terminal = tty is not None
        self._mark = random_id(20)
        self._closed = False
        with engine_errors(f"run '{command[0]}' in the container"):
            self._id: str = self._api.exec_create(
                container,
                self._command,
                stdin=stdin,
                tty=self._has_terminal,
                environment={MARK: self._mark},
            )["Id"]
            self._raw: Any = self._api.exec_start(self._id, tty=self._has_terminal, socket=True)
        # The library returns either the socket, or a file object that wraps the socket.
        self._socket: Any = getattr(self._raw, "_sock", self._raw)
        self._socket.settimeout(None)
        if tty is not None:
            self.resize(tty)

    def output(self) -> Iterator[tuple[Stream, bytes]]:
        started, first = False, b""
        try:
            for number, data in frames_iter(self._socket, self._has_terminal):
                stream = Stream.STDERR if number == _STDERR else Stream.STDOUT
                if not started and b"exec failed" in data:
                    # Hold this output back until the exit code shows whether the runtime wrote it.
                    first += data
                    continue
                started = True
                yield stream, data
        except OSError as e:
            if not self._closed:
                raise BackendError(f"the connection to the container broke: {e}") from None
        if not started and not self._closed:
            end = self._end()
            # A busy engine may close the connection without the message of the runtime.
            if end["ExitCode"] in _NOT_STARTED and (first or end["Pid"] == 0):
                raise ProgramNotFoundError(_not_found(self._command[0], first))
        if first:
            yield Stream.STDOUT, first

    def write(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def close_stdin(self) -> None:
        if self._has_terminal:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def resize(self, size: TerminalSize) -> None:
        if self._has_terminal:
            # The engine refuses to resize the terminal of a command that has ended.
            with contextlib.suppress(BackendError), engine_errors("resize the terminal"):
                self._api.exec_resize(self._id, height=size.rows, width=size.columns)

    def send_signal(self, number: int) -> None:
        with engine_errors("signal the command"):
            command = signal_command(self._mark, number)
            other = self._api.exec_create(self._container, command, stdout=False, stderr=False)
            self._api.exec_start(other["Id"], detach=True)

    def wait(self) -> int:
        return int(self._end()["ExitCode"])

    def _end(self) -> dict[str, Any]:
        """Return the engine's description of the command, which has ended."""
        # A busy engine closes the connection some time before it records the end.
        backoff = Backoff(_END_SECONDS, first_pause=0.02, longest_pause=0.5)
        while True:
            with engine_errors("read the exit code of the command"):
                found: dict[str, Any] = self._api.exec_inspect(self._id)
            if found["ExitCode"] is not None and not found["Running"]:
                return found
            backoff.pause_after(
                BackendError("the engine closed the connection while the command runs")
            )

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(BackendError, OSError):
            with engine_errors("end the command"):
                running = self._api.exec_inspect(self._id)["Running"]
            if running:
                self.send_signal(signal.SIGHUP if self._has_terminal else signal.SIGTERM)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._raw.close()


class DockerSessions(Sessions["DockerScheduler"]):
    """Accesses the containers of one engine.

    Every method may raise a ``BackendError`` if the engine does not answer, or refuses the request.
    """

    def open(
        self,
        app_id: str,
        role: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command in the container of a replica; see :meth:`Sessions.open`."""
        client, container = self._container(app_id, role, k)
        replica = f"{role}/{k}"
        try:
            return _ExecSession(client, container, command, tty, stdin)
        except EngineError as e:
            if e.status == _CONFLICT or "is not running" in str(e):
                raise _not_running(client, container, replica) from None
            if e.status == _NOT_FOUND:
                raise ReplicaNotRunningError(f"the container of {replica} was deleted") from None
            if e.status == _BAD_REQUEST or "exec failed" in str(e):
                raise ProgramNotFoundError(_not_found(command[0], str(e).encode())) from None
            raise

    def connect(self, app_id: str, role: str, k: int, port: int) -> socket.socket:
        """Connect to a port of a container; see :meth:`Sessions.connect`.

        The connection is direct if this machine reaches the port over the container's network. If
        not, for example if the server listens only on the loopback address, a helper program that
        runs in the container relays the connection.

        Raises:
            NotListeningError: Nothing listens on the port.
        """
        client, container = self._container(app_id, role, k)
        replica = f"{role}/{k}"
        with engine_errors(f"inspect the container of {replica}"):
            attrs = client.api.inspect_container(container)
        if attrs["State"]["Status"] != "running":
            raise _not_running(client, container, replica)
        for network in (attrs["NetworkSettings"].get("Networks") or {}).values():
            address = network.get("IPAddress")
            found = connect((address, port), 1.0) if address else None
            if found is not None:
                return found
        try:
            session = self.open(app_id, role, k, relay_command(port), stdin=True)
            return relay(session, replica, port)
        except ProgramNotFoundError:
            raise refused(replica, port) from None

    def read_archive(self, app_id: str, role: str, k: int, path: str) -> Iterator[bytes]:
        """Return a file or folder of a container, which need not run, as a tar archive.

        Raises:
            RequestError: The path does not exist, or leads through too many symbolic links.
        """
        client, container = self._container(app_id, role, k)
        found = _absolute(client, container, path)
        for _ in range(_LINKS):
            with engine_errors(f"read {path} in {role}/{k}", RequestError):
                chunks, about = client.api.get_archive(container, found)
            if about is None or not (about["mode"] & _GO_LINK or stat.S_ISLNK(about["mode"])):
                return iter(chunks)
            chunks.close()
            found = posixpath.join(posixpath.dirname(found), about["linkTarget"])
        raise RequestError(f"cannot read {path} in {role}/{k}: too many links")

    def write_archive(
        self, app_id: str, role: str, k: int, path: str, tar: Iterator[bytes]
    ) -> None:
        """Unpack a tar archive in a folder of a container, which need not run.

        Raises:
            RequestError: The folder does not exist.
        """
        client, container = self._container(app_id, role, k)
        found = _absolute(client, container, path)
        with engine_errors(f"write to {path} in {role}/{k}", RequestError):
            client.api.put_archive(container, found, tar)

    def _container(self, app_id: str, role: str, k: int) -> tuple[DockerClient, str]:
        return self.scheduler._docker_client, self.scheduler._container_id(app_id, role, k)


def _absolute(client: DockerClient, container: str, path: str) -> str:
    if path.startswith("/"):
        return path
    with engine_errors("inspect the container"):
        folder = client.api.inspect_container(container)["Config"].get("WorkingDir") or "/"
    return posixpath.join(folder, path)


def _not_running(client: DockerClient, container: str, replica: str) -> ReplicaNotRunningError:
    with engine_errors(f"inspect the container of {replica}"):
        status = client.api.inspect_container(container)["State"]["Status"]
    if status in _STATE_CREATED:
        return ReplicaNotRunningError(f"{replica} has not started (its container is {status})")
    verb = "is" if status == "paused" else "has ended: its container is"
    return ReplicaNotRunningError(f"{replica} {verb} {status}")


def _not_found(program: str, message: bytes) -> str:
    text = message.decode("utf-8", "replace").strip().rpartition("exec failed: ")[2]
    reason = " ".join(text.split()) or "no such program, or it is not executable"
    return f"cannot run '{program}' in the container: {reason}"
