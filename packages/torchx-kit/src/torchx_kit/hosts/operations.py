"""The operations that one request can contain; see :meth:`torchx_kit.hosts.api.Host.batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchx_kit.hosts.api import CommandResult


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

    The result is a dictionary: path relative to ``folder``, and content.

    Attributes:
        folder: The directory.
        names: Shell patterns of the file names, such as ``replica-*``.
        nested: Whether to read files also in the directories that ``folder`` contains.
        limit: The most bytes of each file.
    """

    folder: str
    names: Sequence[str]
    nested: bool = False
    limit: int | None = None


#: One of the operations.
Operation = MakeDirs | Write | Run | ReadFiles
#: The result of an operation: of a command, the content of files, or None.
Result = CommandResult | dict[str, bytes] | None
