"""The connection to the Docker Engine that builds images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from torchx_kit.images import engine
from torchx_kit.images.engine import find_image as find_image
from torchx_specs.errors import BackendError, WorkspaceError, one_line
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.credentials import credentials_for, is_ecr

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long one response of the engine may take, in seconds.
_TIMEOUT = 600
#: Storage drivers of the engine's own image store. The image store of containerd has other drivers.
_ENGINE_DRIVERS = frozenset({"overlay2", "vfs"})
_CONTAINERD_STORE = ["driver-type", "io.containerd.snapshotter.v1"]


class FullEngineError(BackendError, WorkspaceError):
    """The disk of the engine has no room for the image."""

    exit_code = 3


def connect() -> DockerClient:
    """Return a client of the engine that the environment names (``DOCKER_HOST`` and others).

    Raises:
        WorkspaceError: The docker library is not installed.
        BackendError: The engine does not answer.
    """
    try:
        return engine.connect(_TIMEOUT)
    except ImportError:
        raise WorkspaceError(
            "a Docker Engine builds this image, which needs the docker library:"
            " pip install 'torchx-workspace-docker[docker]'"
        ) from None


def engine_errors(action: str) -> AbstractContextManager[None]:
    """Raise the docker library's errors as errors of TorchX.

    Args:
        action: The action that fails, as in "cannot ACTION".

    Raises:
        WorkspaceError: The engine refuses the request.
        BackendError: The engine does not answer.
    """
    return engine.engine_errors(action, WorkspaceError)


def read_events(action: str, events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a request, and raise an error at the end if an event reports one.

    All events are read, because the connection can be reused only after the last event.

    Args:
        action: The requested action, as in "cannot ACTION".
        events: The events; one with the key ``error`` means that the action has failed.

    Raises:
        WorkspaceError: The action has failed.
        FullEngineError: The disk of the engine is full.
    """
    errors = []
    for event in events:
        if "error" in event:
            errors.append(one_line(event["error"]))
        else:
            yield event
    if not errors:
        return
    if "no space left on device" in errors[0]:
        raise FullEngineError(
            f"cannot {action}: the disk of the Docker Engine is full ({errors[0]});"
            " see what uses it: docker system df"
        )
    raise WorkspaceError(f"cannot {action}: {errors[0]}")


def has_containerd_store(client: DockerClient, image: Mapping[str, Any]) -> bool:
    """Return True if containerd stores the engine's images.

    That store loads only archives that have all layers of an image.

    Args:
        client: The client of the engine.
        image: The engine's description of any image.
    """
    driver = (image.get("GraphDriver") or {}).get("Name")
    if driver in _ENGINE_DRIVERS:
        return False  # This avoids a slow query: the engine runs programs to answer /info.
    return _CONTAINERD_STORE in (client.api.info().get("DriverStatus") or ())


def registry_login(image: str) -> dict[str, str] | None:
    """Return the credentials for an image in ECR, or None if there are none.

    Return None for other registries, because the docker library finds their credentials itself.
    """
    registry = Reference.parse(image).registry
    credentials = credentials_for(registry) if is_ecr(registry) else None
    if credentials is None:
        return None
    return {"username": credentials.user, "password": credentials.secret}
