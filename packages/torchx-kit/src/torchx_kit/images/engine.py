"""The connection to the Docker Engine that ``DOCKER_HOST`` names, and its errors.

The docker library is imported only when an engine is needed, so a dry run does not load it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

from torchx_kit.errors import translated_errors
from torchx_specs.errors import BackendError, TorchXError, one_line
from torchx_specs.redaction import masked_text

if TYPE_CHECKING:
    from docker.client import DockerClient

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
_PING_TIMEOUT = 5


class NoEngineError(BackendError):
    """The engine does not answer, or its address is not valid."""


class EngineError(BackendError):
    """The engine refused a request.

    Args:
        message: The request that was refused, and the reason.
        status: The HTTP status of the engine's response; 0 if it sent none.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def connect(timeout: float) -> DockerClient:
    """Return a client of the engine at ``DOCKER_HOST``, or of this machine's engine.

    The client contacts the engine with its first request.

    Args:
        timeout: How long one response of the engine may take, in seconds.

    Raises:
        ImportError: The docker library is not installed.
        NoEngineError: ``DOCKER_HOST`` or another variable is not valid.
    """
    from torchx_kit.images.lazy_client import lazy_client

    with engine_errors("reach the Docker Engine"):
        return lazy_client(timeout)


def has_docker() -> bool:
    """Return True if a Docker Engine answers."""
    try:
        with closing(connect(_PING_TIMEOUT)) as client:
            return bool(client.ping())
    except Exception:
        return False


def engine_errors(
    action: str, refusal: Callable[[str], TorchXError] | None = None
) -> AbstractContextManager[None]:
    """Return a context manager that raises the docker library's errors as errors of TorchX.

    Args:
        action: The action in the error message, which begins with "cannot ACTION".
        refusal: Returns the error to raise if the engine refuses a request, made from the error
            message; None means an :class:`EngineError`.

    Raises:
        NoEngineError: The engine does not answer.
        EngineError: The engine refuses the request, and ``refusal`` is None.
        TorchXError: The engine refuses the request; the error is the result of ``refusal``.
    """

    def translate(error: Exception) -> TorchXError | None:
        found = translate_error(error, action)
        return refusal(str(found)) if refusal and isinstance(found, EngineError) else found

    return translated_errors(translate)


def find_image(client: DockerClient, image: str) -> dict[str, Any] | None:
    """Return the engine's description of an image, or None if the engine does not have it."""
    import docker.errors

    try:
        return dict(client.api.inspect_image(image))
    except docker.errors.NotFound:
        return None


def translate_error(error: Exception, action: str) -> NoEngineError | EngineError | None:
    """Return the TorchX error for an error of the docker library, or None for any other error.

    Args:
        error: The error.
        action: The action in the error message, which begins with "cannot ACTION".
    """
    import docker.errors
    import requests.exceptions

    if isinstance(error, docker.errors.APIError):
        text = engine_message(error.explanation or error)
        return EngineError(f"cannot {action}: {text}", error.status_code or 0)
    if isinstance(error, (requests.exceptions.RequestException, docker.errors.DockerException)):
        return NoEngineError(
            f"cannot {action}: no answer from the Docker Engine at {engine_address()}"
            f" ({_reason(error)}); start it, or set DOCKER_HOST to its address"
        )
    return None


def engine_message(message: object) -> str:
    """Return an error of a Docker Engine as one line, which says so if a name is not resolved."""
    text = one_line(message)
    unknown = re.search(r"lookup (\S+?)(?: on \S+)?: no such host", text)
    return f"the name of the registry {unknown[1]} cannot be resolved" if unknown else text


def _reason(error: BaseException) -> str:
    """Return the operating system's error among the causes of an error, else the error's text."""
    found = one_line(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            # The errors of requests are OSErrors, too, but their argument is another error.
            text = cause.strerror or next(iter(cause.args), None)
            found = one_line(text) if text and isinstance(text, str) else found
        cause = cause.__cause__ or cause.__context__
    return found


def engine_address() -> str:
    """Return the address of the Docker Engine, without a password."""
    return masked_text(os.environ.get("DOCKER_HOST") or _DEFAULT_ADDRESS)
