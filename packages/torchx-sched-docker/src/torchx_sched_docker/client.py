"""The connection to the Docker Engine; :mod:`torchx_kit.images.engine` defines its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_kit.images import engine

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long one response of the engine may take, in seconds. A busy engine starts containers slowly.
TIMEOUT = 300


def connect() -> DockerClient:
    """Return a client of the engine that the environment names (``DOCKER_HOST`` and others).

    Raises:
        NoEngineError: The engine does not answer, or a variable is not valid.
    """
    return engine.connect(TIMEOUT)
