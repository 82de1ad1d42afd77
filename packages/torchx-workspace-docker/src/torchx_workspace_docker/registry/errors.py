"""The error of a registry."""

from __future__ import annotations

from torchx_specs.errors import BackendError, WorkspaceError, one_line


class RegistryError(BackendError, WorkspaceError):
    """A registry does not answer, or refuses a request."""

    exit_code = 3


class RefusalError(RegistryError):
    """A registry answers that a request is not allowed or not possible."""


def unreachable(registry: str, action: str, error: Exception) -> RegistryError:
    """Return the error for a registry that does not answer.

    Args:
        registry: The registry's name.
        action: The request, for the message.
        error: The error of the request.
    """
    reason = one_line(getattr(error, "reason", None) or error)
    return RegistryError(f"the registry {registry} does not answer ({action}): {reason}")
