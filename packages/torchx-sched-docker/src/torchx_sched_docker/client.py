"""The connection to the Docker Engine, and the translation of errors.

The docker library is imported only when an engine is needed, so a dry run does not load it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torchx_kit.docker_engine import no_engine_message
from torchx_kit.errors import translated_errors
from torchx_specs.errors import BackendError, one_line

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long one response of the engine may take, in seconds. A busy engine starts containers slowly.
TIMEOUT = 300
_PING_TIMEOUT = 5


class NoEngineError(BackendError):
    """The engine does not answer."""


class EngineError(BackendError):
    """The engine refused a request.

    Args:
        message: The request that was refused, and the reason.
        status: The HTTP status of the engine's response; 0 if it sent none.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def connect() -> DockerClient:
    """Return a client of the engine that the environment names (``DOCKER_HOST`` and others).

    The client contacts the engine with its first request.

    Raises:
        NoEngineError: ``DOCKER_HOST`` or another variable is not valid.
    """
    with engine_errors("reach the Docker Engine"):
        from torchx_sched_docker.lazy_api import lazy_client

        return lazy_client(TIMEOUT)


def has_docker() -> bool:
    """Return True if a Docker Engine answers."""
    try:
        from docker.client import from_env

        client = from_env(timeout=_PING_TIMEOUT)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:
        return False


def engine_errors(action: str) -> AbstractContextManager[None]:
    """Raise the docker library's errors as errors of TorchX.

    Args:
        action: The action that fails, as in "cannot ACTION".

    Raises:
        NoEngineError: The engine does not answer.
        EngineError: The engine refuses the request.
    """
    return translated_errors(lambda error: translate_error(error, action))


def translate_error(error: Exception, action: str) -> BackendError | None:
    """Return the TorchX error for an error of the docker library, or None for any other error.

    Args:
        error: The error.
        action: The action that failed, as in "cannot ACTION".
    """
    import docker.errors
    import requests.exceptions

    if isinstance(error, docker.errors.APIError):
        text = one_line(error.explanation or str(error))
        return EngineError(f"cannot {action}: {text}", error.status_code or 0)
    if isinstance(error, (requests.exceptions.RequestException, docker.errors.DockerException)):
        return NoEngineError(no_engine_message(action, error))
    return None
