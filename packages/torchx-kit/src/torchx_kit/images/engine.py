"""The connection to the Docker Engine that ``DOCKER_HOST`` names, and its errors.

The docker library is imported only when an engine is needed, so a dry run does not load it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from torchx_kit.errors import translated_errors
from torchx_specs.errors import BackendError, TorchXError, one_line
from torchx_specs.redaction import masked_text

if TYPE_CHECKING:
    from docker.api.client import APIClient
    from docker.client import DockerClient

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
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


def connect(timeout: float) -> DockerClient:
    """Return a client of the engine that the environment names (``DOCKER_HOST`` and others).

    Args:
        timeout: How long one response of the engine may take, in seconds.

    Raises:
        ImportError: The docker library is not installed.
        NoEngineError: The engine does not answer.
    """
    from docker.client import from_env

    with engine_errors("reach the Docker Engine"):
        client: DockerClient = from_env(timeout=timeout, version=_api_version(timeout))
        return client


def has_docker() -> bool:
    """Return True if a Docker Engine answers."""
    try:
        client = connect(_PING_TIMEOUT)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:
        return False


def engine_errors(
    action: str, refusal: Callable[[str], TorchXError] | None = None
) -> AbstractContextManager[None]:
    """Return a context manager that raises the docker library's errors as errors of TorchX.

    Args:
        action: The action that fails, as in "cannot ACTION".
        refusal: Converts the message of a refused request to the error to raise; None raises an
            :class:`EngineError`.

    Raises:
        NoEngineError: The engine does not answer.
        EngineError: The engine refuses the request, and ``refusal`` is None.
    """

    def translate(error: Exception) -> TorchXError | None:
        found = translate_error(error, action)
        return refusal(str(found)) if refusal and isinstance(found, EngineError) else found

    return translated_errors(translate)


def translate_error(error: Exception, action: str) -> NoEngineError | EngineError | None:
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
        return NoEngineError(
            f"cannot {action}: no answer from the Docker Engine at {engine_address()}"
            f" ({one_line(error)}); start it, or set DOCKER_HOST to its address"
        )
    return None


def engine_address() -> str:
    """Return the address of the Docker Engine, without a password."""
    return masked_text(os.environ.get("DOCKER_HOST") or _DEFAULT_ADDRESS)


def _api_version(timeout: float) -> str:
    """Return the API version of this machine's engine, or "auto" if the library has to query it."""
    if not (os.environ.get("DOCKER_HOST") or "unix:").startswith("unix:"):
        return "auto"
    from docker.client import from_env
    from docker.constants import MINIMUM_DOCKER_API_VERSION

    # from_env makes no request if it gets a version.
    client = from_env(timeout=timeout, version=MINIMUM_DOCKER_API_VERSION)
    try:
        return ping_version(client.api, timeout) or "auto"
    finally:
        client.close()


def ping_version(api: APIClient, timeout: float) -> str | None:
    """Return the engine's API version from the response to ``/_ping``; None if it has none.

    The library queries ``/version``. This is slow, because the engine runs two programs to answer.
    """
    version: str | None = api.get(f"{api.base_url}/_ping", timeout=timeout).headers.get(
        "Api-Version"
    )
    return version
