"""The connection to the Docker Engine; :mod:`torchx_kit.images.engine` defines its errors.

The docker library is imported by the functions that need an engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_kit.images import engine
from torchx_kit.images.engine import EngineError as EngineError
from torchx_kit.images.engine import NoEngineError as NoEngineError
from torchx_kit.images.engine import engine_errors as engine_errors
from torchx_kit.images.engine import has_docker as has_docker
from torchx_kit.images.engine import translate_error as translate_error
from torchx_sched_docker.labels import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
)

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long one response of the engine may take, in seconds. A busy engine starts containers slowly.
TIMEOUT = 300
#: The largest number of concurrent requests to the engine.
PARALLEL = 8

T = TypeVar("T")
R = TypeVar("R")


def connect() -> DockerClient:
    """Return a client of the engine that the environment names (``DOCKER_HOST`` and others).

    The client contacts the engine with its first request.

    Raises:
        NoEngineError: ``DOCKER_HOST`` or another variable is not valid.
    """
    return engine.connect(TIMEOUT)


@contextlib.contextmanager
def ignoring(*statuses: int) -> Iterator[None]:
    """Ignore a refusal of the engine with one of these HTTP statuses.

    Args:
        statuses: For example 404 (there is no such object), or 409 (another process ends or removes
            the object).
    """
    try:
        yield
    except EngineError as e:
        if e.status not in statuses:
            raise


def list_containers(client: DockerClient, app_id: str = "") -> list[dict[str, Any]]:
    """Return the engine's summaries of containers, ordered by role and replica.

    Args:
        client: The client of the engine.
        app_id: The app's id; empty means all apps.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    label = f"{LABEL_APP_ID}={app_id}" if app_id else LABEL_APP_ID
    with engine_errors(f"list the containers of {app_id or 'all apps'}"):
        found = client.api.containers(all=True, filters={"label": label})
    return sorted(found, key=_role_and_replica)


def _role_and_replica(summary: dict[str, Any]) -> tuple[int, str, int]:
    """Return the sort key of a container; upstream's TorchX sets no label for the role's index."""
    labels = summary["Labels"]
    return (
        int(labels.get(LABEL_ROLE_INDEX, "0")),
        str(labels.get(LABEL_ROLE_NAME)),
        int(labels.get(LABEL_REPLICA_ID, "0")),
    )


def in_parallel(
    function: Callable[[T], R],
    items: Iterable[T],
    on_failure: Callable[[], None] = lambda: None,
) -> list[R]:
    """Call a function with each item, and return the results in the order of the items.

    At most :data:`PARALLEL` threads make the calls. After a failure, calls that have not begun are
    dropped.

    Args:
        function: The function to call.
        items: One argument for each call.
        on_failure: Called if a call fails, or if Ctrl-C interrupts the wait; it makes calls that
            take long end early.

    Raises:
        Exception: The error of the first item, in the order of ``items``, whose call failed.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(PARALLEL) as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            on_failure()
            raise
