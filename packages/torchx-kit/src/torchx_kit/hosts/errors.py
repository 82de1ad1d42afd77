"""Errors that every implementation of :class:`torchx_kit.hosts.api.Host` raises."""

from __future__ import annotations

from torchx_specs.errors import BackendError


class HostError(BackendError):
    """A host refused or failed to do something; base of the errors below."""


class HostRefusedError(HostError):
    """The host refuses this user's connection, so it executed nothing; it will refuse the next."""


class HostUnreachableError(HostError):
    """The host did not answer, so it is unknown whether it executed the request.

    The same request may succeed later.
    """


class CommandTimeoutError(HostUnreachableError):
    """A command did not end within its time limit, and was killed as far as possible."""


class CommandNotFoundError(HostError):
    """The host has no such program on its PATH."""


class HostFileError(HostError):
    """A file or directory of the host cannot be read, written or removed."""


_KINDS: dict[str, type[HostError]] = {
    "missing_command": CommandNotFoundError,
    "timeout": CommandTimeoutError,
    "file": HostFileError,
    "host": HostError,
}


def host_error(kind: str, message: str) -> HostError:
    """Return the error for a :class:`torchx_kit.hosts.agent.Failure`."""
    return _KINDS[kind](message)
