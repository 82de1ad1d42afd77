"""The errors of a registry."""

from __future__ import annotations

from torchx_specs.errors import BackendError, WorkspaceError, one_line

#: How many characters of a message are kept at its start and at its end.
_HEAD, _TAIL = 1000, 300


class RegistryError(BackendError, WorkspaceError):
    """A registry does not answer, or refuses a request.

    Args:
        message: The message, which may have text of the registry. It becomes one line of limited
            length.
    """

    exit_code = 3

    def __init__(self, message: str) -> None:
        text = one_line(message)
        if len(text) > _HEAD + _TAIL:
            text = f"{text[:_HEAD]} ... {text[-_TAIL:]}"
        super().__init__(text)


class RefusalError(RegistryError):
    """A registry answers that a request is not allowed or not possible."""


def unreachable(registry: str, action: str, error: Exception) -> RegistryError:
    """Return the error for a registry that does not answer.

    Args:
        registry: The registry's name.
        action: What the client tried to do, for the message (``GET /v2/...``).
        error: The error of the request.
    """
    reason = one_line(getattr(error, "reason", None) or error)
    return RegistryError(f"the registry {registry} does not answer ({action}): {reason}")
