"""The errors of a registry."""

from __future__ import annotations

from urllib3.exceptions import ReadTimeoutError

from torchx_specs.errors import BackendError, WorkspaceError, one_line

#: How many characters of a message are kept at its start and at its end.
_HEAD, _TAIL = 1000, 300


class RegistryError(BackendError, WorkspaceError):
    """A registry does not answer, or refuses a request.

    Args:
        message: The message, which may have text of the registry. It becomes one line of limited
            length.
        may_retry: Whether the same request may succeed later.
        retry_after: How long to wait before that, as the registry's header says it; may be empty.
        status: The HTTP status of the registry's response; 0 if there is none.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, may_retry: bool = False, retry_after: str = "", status: int = 0
    ) -> None:
        text = one_line(message)
        if len(text) > _HEAD + _TAIL:
            text = f"{text[:_HEAD]} ... {text[-_TAIL:]}"
        super().__init__(text)
        self.may_retry = may_retry
        self.retry_after = retry_after
        self.status = status


class RefusalError(RegistryError):
    """A registry answers that a request is not allowed or not possible."""


def unreachable(registry: str, action: str, error: Exception) -> RegistryError:
    """Return the error for a registry that does not answer.

    The request may be repeated, unless the registry has accepted it and then sent nothing.

    Args:
        registry: The registry's name.
        action: What the client tried to do, for the message (``GET /v2/...``).
        error: The error of the request.
    """
    reason = one_line(getattr(error, "reason", None) or error)
    return RegistryError(
        f"the registry {registry} does not answer ({action}): {reason}",
        may_retry=not isinstance(error, ReadTimeoutError),
    )
