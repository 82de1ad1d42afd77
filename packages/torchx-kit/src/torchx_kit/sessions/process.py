"""Sessions of local processes: the command itself, or a client that runs the command elsewhere."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import selectors
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence

from torchx_kit.signals import SHELL_SIGNAL_BASE
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.sessions import ProgramNotFoundError, Session, TerminalSize

_BLOCK = 1 << 16
# How often to check whether the process has ended while its child processes keep the pipes open, in
# seconds.
_POLL_SECONDS = 0.1
# How long a process may take to end after the session was closed, in seconds.
_GRACE_SECONDS = 1.0


class ProcessSession(Session):
    """A process of this machine, which leads a session and a process group of its own.

    Args:
        command: The program and its arguments.
        tty: Size of the terminal that the process gets; None means pipes.
        stdin: Whether :meth:`write` sends input to the process; if False, its input is empty.
        env: The complete environment; None means the environment of this process.
        cwd: The working directory; None means the working directory of this process.

    Raises:
        ProgramNotFoundError: The program does not exist or cannot be run.
        BackendError: This machine cannot start a process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        tty: TerminalSize | None,
        stdin: bool,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._terminal = -1
        pipe = subprocess.PIPE
        streams: tuple[int, int, int] = (pipe if stdin else subprocess.DEVNULL, pipe, pipe)
        other = -1
        try:
            if tty is not None:
                self._terminal, other = os.openpty()
                self.resize(tty)
                streams = (other, other, other)
            self._process = subprocess.Popen(
                list(command),
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                env=env,
                cwd=cwd,
                bufsize=0,
                start_new_session=True,
                # preexec_fn is safe here although there are threads: the function needs no lock.
                preexec_fn=_take_terminal if tty is not None else None,
            )
        except OSError as e:
            if self._terminal >= 0:
                os.close(self._terminal)
            if e.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
                raise ProgramNotFoundError(
                    f"cannot run '{command[0]}': {e.strerror}; give a program on the replica's"
                    " PATH, or its path"
                ) from None
            raise BackendError(f"cannot run '{command[0]}': {e.strerror or e}") from None
        except subprocess.SubprocessError as e:
            os.close(self._terminal)
            raise BackendError(f"cannot run '{command[0]}' in a terminal: {e}") from None
        finally:
            if other >= 0:
                os.close(other)

    def output(self) -> Iterator[tuple[Stream, bytes]]:
        with selectors.DefaultSelector() as selector:
            first = self._process.stdout or self._terminal
            selector.register(first, selectors.EVENT_READ, Stream.STDOUT)
            if self._process.stderr is not None:
                selector.register(self._process.stderr, selectors.EVENT_READ, Stream.STDERR)
            while selector.get_map():
                # A background process may keep the streams open after the end of the command.
                ended = self._process.poll() is not None
                ready = selector.select(0 if ended else _POLL_SECONDS)
                if ended and not ready:
                    return
                for key, _ in ready:
                    data = _read(key.fd)
                    if data:
                        yield key.data, data
                    else:
                        selector.unregister(key.fileobj)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            with self._lock:
                fd = self._input()
            if fd < 0:
                return
            try:
                view = view[os.write(fd, view[:_BLOCK]) :]
            except OSError as e:
                if e.errno in (errno.EPIPE, errno.EIO, errno.EBADF):
                    return
                raise

    def close_stdin(self) -> None:
        with self._lock:
            if self._process.stdin is not None:
                self._process.stdin.close()

    def resize(self, size: TerminalSize) -> None:
        if self._terminal >= 0:
            with contextlib.suppress(OSError):
                packed = struct.pack("HHHH", size.rows, size.columns, 0, 0)
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, packed)

    def send_signal(self, number: int) -> None:
        self._signal_group(number)

    def wait(self) -> int:
        code = self._process.wait()
        return code if code >= 0 else SHELL_SIGNAL_BASE - code

    def close(self) -> None:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            self._signal_group(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0 if number == signal.SIGHUP else _GRACE_SECONDS)
        with self._lock:
            terminal, self._terminal = self._terminal, -1
            if terminal >= 0:
                os.close(terminal)
            for file in (self._process.stdin, self._process.stdout, self._process.stderr):
                if file is not None:
                    with contextlib.suppress(OSError):
                        file.close()

    def _signal_group(self, number: int) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _input(self) -> int:
        """Return the descriptor of standard input, or -1 if it is closed."""
        if self._terminal >= 0:
            return self._terminal
        file = self._process.stdin
        return -1 if file is None or file.closed else file.fileno()


def environment_without(prefix: str, *kept: str) -> dict[str, str]:
    """Return this process's environment without the variables whose names start with a prefix.

    Args:
        prefix: The beginning of the names of the variables to leave out.
        kept: Names of variables to keep although they start with the prefix.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or not name.startswith(prefix)
    }


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _BLOCK)
    except OSError as e:
        if e.errno in (errno.EIO, errno.EBADF):  # EIO: no process has the terminal open
            return b""
        raise
