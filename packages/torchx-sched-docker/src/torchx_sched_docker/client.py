"""The connection to the Docker Engine, lists of containers, and the networks of apps.

Each app has a network, in which its replicas find each other by name.
:mod:`torchx_kit.images.engine` defines the errors.

The docker library is imported by the functions that need an engine.
"""

from __future__ import annotations

import contextlib
import time
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
    LABEL_VERSION,
)
from torchx_sched_docker.request import NETWORK, network_name
from torchx_sched_docker.states import summary_state
from torchx_specs.model.status import is_terminal
from torchx_specs.version import __version__

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


_CREATE_ATTEMPTS = 4
_REMOVE_ATTEMPTS = 20
_PAUSE = 0.25


def ensure_network(client: DockerClient | None = None) -> None:
    """Create the network ``torchx`` unless it exists.

    Plugins that were written for upstream's TorchX put the containers of all apps in this network.

    Args:
        client: The client to use; None creates one from the environment (``DOCKER_HOST``).

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    if client is not None:
        _create_network(client, NETWORK, {})
        return
    with contextlib.closing(connect()) as own:
        _create_network(own, NETWORK, {})


def create_app_network(client: DockerClient, app_id: str) -> None:
    """Create the network of an app.

    An engine has addresses for a few dozen networks only. If none are left, this removes the
    networks of apps that have ended and tries again.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    name = network_name(app_id)
    labels = {LABEL_VERSION: __version__, LABEL_APP_ID: app_id}
    try:
        _create_network(client, name, labels)
    except EngineError as e:
        if "address pool" not in str(e) or not _remove_unused_networks(client):
            raise
        _create_network(client, name, labels)


def remove_app_networks(client: DockerClient, app_id: str) -> None:
    """Remove the networks of an app, if it has any.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    with engine_errors(f"list the networks of {app_id}"):
        networks = client.api.networks(filters={"label": f"{LABEL_APP_ID}={app_id}"})
    for network in networks:
        with ignoring(404):
            _remove_network(client, str(network["Id"]))


def _create_network(client: DockerClient, name: str, labels: dict[str, str]) -> None:
    def create() -> None:
        with ignoring(409), engine_errors(f"create the network {name}"):
            client.api.create_network(name, driver="bridge", check_duplicate=True, labels=labels)

    # The firewall service, or another engine, may be rewriting the firewall rules.
    _retrying(create, _CREATE_ATTEMPTS, lambda error: "iptables failed" in str(error))


def _remove_network(client: DockerClient, network: str) -> None:
    def remove() -> None:
        with engine_errors(f"remove the network {network}"):
            client.api.remove_network(network)

    # 403: a container that has just ended, or that another process removes, is still in it.
    _retrying(remove, _REMOVE_ATTEMPTS, lambda error: error.status == 403)


def _retrying(
    request: Callable[[], None], attempts: int, is_temporary: Callable[[EngineError], bool]
) -> None:
    for attempt in range(1, attempts + 1):
        try:
            return request()
        except EngineError as e:
            if attempt == attempts or not is_temporary(e):
                raise
            time.sleep(_PAUSE)


def _remove_unused_networks(client: DockerClient) -> int:
    """Remove the networks of apps whose containers have all ended; return how many were removed."""
    running: dict[str, bool] = {}
    for summary in list_containers(client):
        app_id = summary["Labels"][LABEL_APP_ID]
        running[app_id] = running.get(app_id, False) or not is_terminal(summary_state(summary))
    with engine_errors("list networks"):
        networks = client.api.networks(filters={"label": LABEL_APP_ID})
    # Keep the network of an app without containers: its submission may have just begun.
    unused = [n["Id"] for n in networks if not running.get(n["Labels"][LABEL_APP_ID], True)]
    removed = 0
    for network in unused:
        with contextlib.suppress(EngineError):
            _remove_network(client, network)
            removed += 1
    return removed
