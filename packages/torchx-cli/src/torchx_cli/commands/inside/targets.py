"""Selects the replica in which a command works."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from torchx_cli.arguments.handles import resolve_identifier
from torchx_cli.logs.replicas import described_replicas, parse_identifier
from torchx_specs.errors import RequestError

if TYPE_CHECKING:
    from torchx_runner import Runner

#: How an argument names a replica, for help texts.
REPLICA = "HANDLE[/ROLE/REPLICA]"

_SHOWN = 8
# Matches SCHEDULER://…:PATH with SESSION/APP/ROLE/K, ID/ROLE/K, SESSION/APP or ID; an app's id may
# contain colons.
_REMOTE = re.compile(
    r"([^:/\s]+://"
    r"(?:[^/]*/[^/]+/[^/]+/\d+|[^:/\s]+/[^:/]+/\d+|[^:/]*/[^/]+|[^/\s]+)):(.*)\Z",
    re.DOTALL,
)


class Target(NamedTuple):
    """A replica of an app.

    Attributes:
        handle: The app.
        role: The role.
        k: Index of the replica in its role.
    """

    handle: str
    role: str
    k: int

    def __str__(self) -> str:
        return f"{self.role}/{self.k}"


class RemotePath(NamedTuple):
    """A path in a replica.

    Attributes:
        replica: The replica, as the user typed it.
        path: The path, relative to the replica's working directory or absolute.
    """

    replica: str
    path: str


def find_target(runner: Runner, text: str) -> Target:
    """Return the replica that a text names.

    If the text names an app or a role, return the only replica of that app or role.

    Args:
        runner: The runner.
        text: A handle or a short name, optionally with ``/ROLE`` or ``/ROLE/REPLICA``.

    Raises:
        RequestError: The text is malformed, the app has no such role, several replicas match, or
            the scheduler does not return the replicas.
        UnknownAppException: The app does not exist. This is not checked if the text names a
            replica.
    """
    source = parse_identifier(resolve_identifier(text))
    if source.role is not None and source.replicas is not None and len(source.replicas) == 1:
        return Target(source.app_handle, source.role, source.replicas[0])
    found = described_replicas(runner, source)
    if len(found) == 1:
        return Target(source.app_handle, *found[0])
    names = [f"{role}/{k}" for role, k in found[:_SHOWN]]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise RequestError(
        f"which replica? {source.app_handle} has {len(found)}: {', '.join(names)}{more};"
        f" for example: {source.app_handle}/{names[0]}"
    )


def parse_remote_path(text: str) -> RemotePath | None:
    """Return the replica and the path in ``REPLICA:PATH``, or None for a path of this machine.

    >>> parse_remote_path("slurm://torchx/17/trainer/0:out/a:b")
    RemotePath(replica='slurm://torchx/17/trainer/0', path='out/a:b')
    >>> parse_remote_path("kubernetes://torchx/team:train-x1:/data")
    RemotePath(replica='kubernetes://torchx/team:train-x1', path='/data')
    >>> parse_remote_path("slurm://17:out")
    RemotePath(replica='slurm://17', path='out')
    >>> parse_remote_path("@1:out")
    RemotePath(replica='@1', path='out')
    >>> parse_remote_path("./a:b") is None
    True

    If a path after a complete handle contains a colon, REPLICA must include the role and the index.
    A path of this machine that contains a colon starts with ``/``, ``.`` or ``~``.

    Raises:
        RequestError: A handle is not followed by a path.
    """
    found = _REMOTE.match(text)
    if found:
        return RemotePath(found[1], found[2])
    scheme, colon, path = text.partition(":")
    if path.startswith("//") and "/" not in scheme:
        raise RequestError(f"'{text:.200}' names no path; use {REPLICA}:PATH")
    if text.startswith(("/", ".", "~")) or not colon:
        return None
    return RemotePath(scheme, path)
