"""The connection to the helper program on a host: concurrent requests, and reconnection."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from importlib.resources import files
from typing import IO, Any, cast

from torchx_host_ssh.openssh import OpenSsh
from torchx_kit.hosts import agent
from torchx_kit.hosts.errors import (
    HostError,
    HostRefusedError,
    HostUnreachableError,
    host_error,
)

#: Starts the program that follows on standard input, after a line with its length. The text between
#: the single quotes means the same in every shell.
START = (
    "exec python3 -IS -c"
    ' \'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"torchx","exec"))\''
)
# More output than this before the program's first line is not the output of a start-up file.
_LONGEST_NOISE = 1 << 20
_LONGEST_LINE = 1 << 16
# How long the shell may take to end after its last output, in seconds.
_START_PATIENCE = 10.0
# The exit codes of shells for a missing command, and of ssh itself.
_NO_COMMAND, _SSH_FAILED = 127, 255


class ConnectionLostError(HostUnreachableError):
    """The connection broke during a request."""


class Connection:
    """One helper program on the host.

    Args:
        ssh: The host.

    Attributes:
        facts: What the program knows of the host; see :func:`torchx_kit.hosts.agent.greeting`.

    Raises:
        HostError: ssh refuses to connect, or the program does not start.
        HostUnreachableError: The host does not answer.
    """

    def __init__(self, ssh: OpenSsh) -> None:
        self._ssh = ssh
        self._pid = os.getpid()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._is_lost = False
        ssh.connect()
        with contextlib.ExitStack() as resources:
            resources.enter_context(ssh.client())
            self._messages: IO[bytes] = resources.enter_context(tempfile.TemporaryFile())
            # Keys of the terminal, such as Ctrl-C, must not end ssh: hence its session.
            self._process = subprocess.Popen(
                ssh.argv("-o", "ControlMaster=no", "-o", "BatchMode=yes", "-T", command=START),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                start_new_session=True,
            )
            resources.callback(_end, self._process)
            self._stdin = cast("IO[bytes]", self._process.stdin)
            self._stdout = cast("IO[bytes]", self._process.stdout)
            self.facts: dict[str, Any] = self._start()
            self._resources = resources.pop_all()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent: not after a break, and not in a forked process."""
        return not self._is_lost and self._is_own

    @property
    def _is_own(self) -> bool:
        return self._pid == os.getpid()

    def send(self, name: str, *arguments: Any) -> Future[Any]:
        """Send a request, and return its future result.

        Args:
            name: The name of the operation; see :mod:`torchx_kit.hosts.agent`.
            arguments: The operation's arguments.
        """
        number = next(self._numbers)
        frame = agent.pack([number, name, *arguments])
        future: Future[Any] = Future()
        with self._lock:
            try:
                if self._is_lost:
                    raise OSError
                self._waiting[number] = future
                self._stdin.write(frame)
                self._stdin.flush()
            except (OSError, ValueError):
                self._waiting.pop(number, None)
                self._is_lost = True
                future.set_exception(self._lost_error())
        return future

    def close(self) -> None:
        """End the program."""
        if self._is_own:
            self._resources.close()
            self._thread.join()

    def _start(self) -> dict[str, Any]:
        """Send the program, and skip what the shell's start-up files print before its answer."""
        source = (files("torchx_kit.hosts") / "agent.py").read_bytes()
        marker = f"torchx-{secrets.token_hex(16)}\n".encode()
        noise = b""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(b"%d\n%b%b" % (len(source), source, marker))
            self._stdin.flush()
            while len(noise) < _LONGEST_NOISE:
                line = self._stdout.readline(_LONGEST_LINE)
                if line.endswith(marker):
                    facts = agent.unpack(self._stdout)
                    if isinstance(facts, dict):
                        return facts
                noise += line
                if not line:
                    break
        _end(self._process, _START_PATIENCE)
        self._stdout.close()
        raise self._start_error(self._process.returncode, noise)

    def _start_error(self, code: int, noise: bytes) -> HostError:
        name, messages = self._ssh.name, self._ssh_messages()
        if code == _SSH_FAILED:
            return self._ssh.failure(messages)
        if code == _NO_COMMAND or "command not found" in messages.lower():
            return HostError(
                f"{name} has no command python3: install Python 3.6 or newer there, or add it to"
                " PATH in the start-up file of your shell"
            )
        output = " ".join((messages or noise.decode("utf-8", "replace")).split())[-500:]
        return HostError(
            f"the helper program does not start on {name}: python3 ended with exit code {code}"
            f"{': ' * bool(output)}{output}"
        )

    def _receive(self) -> None:
        """Pass the answers to those who wait for them, until the connection breaks."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            while (answer := agent.unpack(self._stdout)) is not None:
                number, kind, *rest = answer
                with self._lock:
                    future = self._waiting.pop(number)
                if kind:
                    future.set_exception(host_error(kind, *rest))
                else:
                    future.set_result(rest[0])
        with self._lock:
            self._is_lost = True
            lost = list(self._waiting.values())
            self._waiting.clear()
        for future in lost:
            future.set_exception(self._lost_error())
        self._stdout.close()

    def _lost_error(self) -> ConnectionLostError:
        messages = " ".join(self._ssh_messages().split())
        return ConnectionLostError(
            f"the connection to {self._ssh.name} broke{': ' * bool(messages)}{messages}"
        )

    def _ssh_messages(self) -> str:
        with contextlib.suppress(ValueError):  # the file is closed
            size = self._messages.seek(0, os.SEEK_END)
            self._messages.seek(max(0, size - 4000))
            return self._messages.read().decode("utf-8", "replace")
        return ""


class Channel:
    """The requests of one client to a host, over one connection at a time.

    All methods may be called from any thread.

    Args:
        ssh: The host.
    """

    def __init__(self, ssh: OpenSsh) -> None:
        self._ssh = ssh
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """Return the connection; connect if there is none, or if it broke.

        Raises:
            HostError: As for :class:`Connection`.
        """
        with self._lock:
            if self._connection is None or not self._connection.is_usable:
                self._drop()
                self._connection = Connection(self._ssh)
            return self._connection

    def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
        """Send a request, and return its result.

        Args:
            name: The name of the operation.
            arguments: The operation's arguments.
            is_safe: Whether the operation may be executed twice. If the connection breaks, it is
                sent once more.

        Raises:
            HostError: The error of the operation, or as for :class:`Connection`.
            HostUnreachableError: The connection broke.
        """
        try:
            return self.connection().send(name, *arguments).result()
        except ConnectionLostError:
            if not is_safe:
                raise
        try:
            connection = self.connection()
        except HostRefusedError as e:  # the host may have executed the first request
            raise HostUnreachableError(str(e)) from None
        return connection.send(name, *arguments).result()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _end(process: subprocess.Popen[bytes], seconds: float = 0.0) -> None:
    """End ssh; the helper program then ends by the end of its input.

    Args:
        process: The process of ssh.
        seconds: How long to wait for an end of its own.
    """
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
