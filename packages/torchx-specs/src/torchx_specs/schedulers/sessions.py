"""The interface of commands, ports and files of running replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchx_specs.errors import BackendError, RequestError, TorchXError
from torchx_specs.errors import NotSupportedError as NotSupportedError
from torchx_specs.schedulers.features import Ability, S
from torchx_specs.schedulers.log_items import Stream

if TYPE_CHECKING:
    from socket import socket

    from typing_extensions import Self


class ReplicaNotRunningError(TorchXError):
    """The replica has ended, or has not started."""

    exit_code = 1


class ProgramNotFoundError(RequestError):
    """The command's program does not exist in the replica, or cannot be run."""

    exit_code = 127


class NotListeningError(BackendError):
    """Nothing accepts connections on the port of the replica."""


class TerminalSize(NamedTuple):
    """The size of a terminal, in characters."""

    columns: int = 80
    rows: int = 24


class Session(ABC):
    """A command that runs in a replica. Leaving the context of a session ends the session.

    One thread may read :meth:`output` while others call the other methods. Every method may raise
    :class:`~torchx_specs.errors.BackendError` if the connection breaks.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def output(self) -> Iterator[tuple[Stream, bytes]]:
        """Yield the bytes of standard output and standard error as they arrive.

        The iterator ends at the end of both streams. With a terminal, all bytes are standard
        output.
        """

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Write bytes to standard input; do nothing if the command no longer reads."""

    @abstractmethod
    def close_stdin(self) -> None:
        """End standard input; output continues. With a terminal, do nothing."""

    @abstractmethod
    def resize(self, size: TerminalSize) -> None:
        """Set the size of the terminal; without a terminal, do nothing."""

    @abstractmethod
    def send_signal(self, number: int) -> None:
        """Send a signal to the command, or end the command if the scheduler cannot signal it."""

    @abstractmethod
    def wait(self) -> int:
        """Return the exit code after the end of :meth:`output`; 128 + N means signal N."""

    @abstractmethod
    def close(self) -> None:
        """End the session, and the command if it runs; may be called more than once."""


class Sessions(Ability[S]):
    """Accesses the running replicas of one scheduler; a scheduler returns one as ``app_sessions``.

    The methods raise a ``NotSupportedError`` unless a subclass implements them. Every method may
    raise :class:`ReplicaNotRunningError`.
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
        """Start a command with the environment and the working directory of a replica (``exec``).

        Args:
            app_id: The app.
            role: The role.
            k: Index of the replica in its role.
            command: The program and its arguments.
            tty: Size of the terminal that the command gets; None means pipes.
            stdin: Whether the command gets input; False means that its input is empty.
        """
        raise self.scheduler.features.error("exec", self.scheduler.backend)

    def connect(self, app_id: str, role: str, k: int, port: int) -> socket:
        """Return a socket that is connected to a port of a replica (feature ``ports``)."""
        raise self.scheduler.features.error("ports", self.scheduler.backend)

    def read_archive(self, app_id: str, role: str, k: int, path: str) -> Iterator[bytes]:
        """Return a file or folder as a tar archive (feature ``archives``)."""
        raise self.scheduler.features.error("archives", self.scheduler.backend)

    def write_archive(
        self, app_id: str, role: str, k: int, path: str, tar: Iterator[bytes]
    ) -> None:
        """Unpack a tar archive in an existing folder (feature ``archives``)."""
        raise self.scheduler.features.error("archives", self.scheduler.backend)
