"""The connection to the Docker Engine; :mod:`torchx_kit.images.engine` defines its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_kit.images.engine import EngineError as EngineError
from torchx_kit.images.engine import NoEngineError as NoEngineError
from torchx_kit.images.engine import engine_errors as engine_errors
from torchx_kit.images.engine import has_docker as has_docker
from torchx_kit.images.engine import translate_error as translate_error

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long one response of the engine may take, in seconds. A busy engine starts containers slowly.
TIMEOUT = 300


def connect() -> DockerClient:
    """Return a client of the engine that the environment names (``DOCKER_HOST`` and others).

    The client contacts the engine with its first request.

    Raises:
        NoEngineError: ``DOCKER_HOST`` or another variable is not valid.
    """
    with engine_errors("reach the Docker Engine"):
        from torchx_sched_docker.lazy_api import lazy_client

        return lazy_client(TIMEOUT)
