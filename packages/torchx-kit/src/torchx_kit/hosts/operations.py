"""The operations that one request can contain; see :meth:`torchx_kit.hosts.api.Host.batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Attributes:
        exit_code: The exit code; negative for a signal, as in :mod:`subprocess`.
        stdout: Standard output. Bytes that are not UTF-8 become surrogate escapes.
        stderr: Standard error, decoded in the same way.
    """

    exit_code: int
    stdout: str
    stderr: str

    @classmethod
    def of(cls, result: Sequence[Any]) -> CommandResult:
        """Return the result of :func:`torchx_kit.hosts.agent.run` with decoded output."""
        code, *output = result
        return cls(code, *(bytes(data).decode("utf-8", "surrogateescape") for data in output))


@dataclass(frozen=True)
class MakeDirs:
    """Create a directory and its parents; see :meth:`Host.make_dirs`."""

    path: str
    mode: int = 0o777


@dataclass(frozen=True)
class Write:
    """Write a file atomically; see :meth:`Host.write`."""

    path: str
    data: str | bytes
    mode: int = 0o600


@dataclass(frozen=True)
class Run:
    """Run a command; see :meth:`Host.run`. A command that fails ends the request."""

    argv: Sequence[str]
    stdin: bytes | None = None
    env: Mapping[str, str | None] | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class ReadFiles:
    """Read several files of a directory; missing and unreadable files are left out.

    The result is a dictionary: name, and content.

    Attributes:
        folder: The directory.
        names: Shell patterns of the file names, such as ``replica-*``.
        limit: The most bytes of each file.
    """

    folder: str
    names: Sequence[str]
    limit: int | None = None


#: One of the operations.
Operation = MakeDirs | Write | Run | ReadFiles
#: The result of an operation: of a command, the content of files, or None.
Result = CommandResult | dict[str, bytes] | None
#: An operation as :mod:`torchx_kit.hosts.agent` knows it: its name, and its arguments.
Request = tuple[str, tuple[Any, ...]]


def as_request(operation: Operation) -> Request:
    """Return an operation as :mod:`torchx_kit.hosts.agent` knows it."""
    match operation:
        case Run(argv, stdin, env, timeout):
            return "run", (list(argv), stdin, dict(env or {}), timeout)
        case ReadFiles(folder, names, limit):
            return "read_files", (folder, list(names), limit)
        case MakeDirs(path, mode):
            return "make_dirs", (path, mode)
        case Write(path, str() as text, mode):
            return "write", (path, text.encode("utf-8", "surrogateescape"), mode)
        case Write(path, data, mode):
            return "write", (path, data, mode)


def as_result(operation: Operation, result: Any) -> Result:
    """Return the result of an operation from that of :mod:`torchx_kit.hosts.agent`."""
    if isinstance(operation, Run):
        return CommandResult.of(result)
    return dict(result) if isinstance(operation, ReadFiles) else None
