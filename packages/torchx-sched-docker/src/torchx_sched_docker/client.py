"""The Docker Engine: reaching it, and its errors in our words."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchx_sched_docker.labels import LABEL_APP_ID, LABEL_VERSION
from torchx_sched_docker.request import NETWORK, network_name
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long one answer of the engine may take, in seconds: a busy one starts containers slowly.
TIMEOUT = 300
_PING_TIMEOUT = 5
_RELEASE_ATTEMPTS = 20
_RELEASE_PAUSE = 0.25
_FIREWALL_ATTEMPTS = 4


class NoEngineError(BackendError):
    """The engine does not answer."""


def connect() -> DockerClient:
    """Returns a client of the engine that the environment names (``DOCKER_HOST`` ...).

    Raises:
        NoEngineError: it does not answer
    """
    with engine_errors("reach the Docker Engine"):
        from docker.client import from_env

        client: DockerClient = from_env(timeout=TIMEOUT)
        return client


def has_docker() -> bool:
    """Returns True if a Docker Engine answers."""
    try:
        from docker.client import from_env

        client = from_env(timeout=_PING_TIMEOUT)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:
        return False


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turns the library's errors into ours.

    Args:
        what: what is being done, as in "cannot <what>"

    Raises:
        NoEngineError: the engine does not answer
        BackendError: it refuses
    """
    try:
        yield
    except (KeyboardInterrupt, BackendError):
        raise
    except Exception as e:
        ours = translated(e, what)
        if ours is None:
            raise
        raise ours from e


def translated(error: Exception, what: str) -> BackendError | None:
    """Returns one of the library's errors as ours, None if it is none of the library's."""
    import docker.errors
    import requests.exceptions

    if isinstance(error, docker.errors.APIError):
        return BackendError(f"cannot {what}: {one_line(error.explanation or str(error))}")
    if isinstance(error, (requests.exceptions.RequestException, docker.errors.DockerException)):
        return NoEngineError(
            f"cannot {what}: no answer from the Docker Engine at {address()}"
            f" ({one_line(str(error))}); start it, or set DOCKER_HOST to where it is"
        )
    return None


def is_status(error: BaseException | None, code: int) -> bool:
    """Returns True if the engine answered with that HTTP status, in ``error`` or its cause."""
    while error is not None:
        if getattr(getattr(error, "response", None), "status_code", None) == code:
            return True
        error = error.__cause__
    return False


def address() -> str:
    """Returns where the engine is looked for."""
    from torchx_specs.redaction import masked_text

    return masked_text(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")


def one_line(text: Any) -> str:
    """Returns a message of the engine on one line."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return " ".join(str(text).split())


def ensure_network(client: DockerClient | None = None) -> None:
    """Makes the network ``torchx`` unless it is there; older plugins' containers share it."""
    held = client or connect()
    try:
        _create_network(held, NETWORK, {})
    finally:
        if client is None:
            held.close()


def make_network(client: DockerClient, app_id: str) -> str:
    """Makes the network of an app, and returns its name.

    The engine has addresses for a few dozen networks only. When none are left, the networks of apps
    that have ended are removed, which need them no more.

    Raises:
        BackendError: it cannot be made
    """
    from torchx_specs.version import __version__

    name = network_name(app_id)
    labels = {LABEL_VERSION: __version__, LABEL_APP_ID: app_id}
    with engine_errors(f"make the network {name}"):
        import docker.errors

        try:
            _create_network(client, name, labels)
        except docker.errors.APIError as e:
            if "address pool" not in str(e.explanation) or not _remove_unused(client):
                raise
            _create_network(client, name, labels)
    return name


def remove_network(client: DockerClient, name: str) -> None:
    """Removes a network, if it is there."""
    with engine_errors(f"remove the network {name}"):
        import docker.errors

        with contextlib.suppress(docker.errors.NotFound):
            client.api.remove_network(name)


def networks_of(client: DockerClient, app_id: str) -> list[str]:
    """Returns the ids of an app's networks."""
    with engine_errors(f"look for the networks of {app_id}"):
        found = client.api.networks(filters={"label": f"{LABEL_APP_ID}={app_id}"})
    return [str(network["Id"]) for network in found]


def _create_network(client: DockerClient, name: str, labels: dict[str, str]) -> None:
    import docker.errors

    for attempt in range(_FIREWALL_ATTEMPTS):
        try:
            client.api.create_network(name, driver="bridge", check_duplicate=True, labels=labels)
        except docker.errors.APIError as e:
            # the firewall's rules are just being made anew, by its own service or another engine
            if "iptables failed" in str(e.explanation) and attempt + 1 < _FIREWALL_ATTEMPTS:
                time.sleep(_RELEASE_PAUSE)
                continue
            if not is_status(e, 409):
                raise
        return


def _remove_unused(client: DockerClient) -> int:
    """Removes the networks of apps of which no container runs; returns how many."""
    import docker.errors

    running: dict[str, bool] = {}
    for summary in client.api.containers(all=True, filters={"label": LABEL_APP_ID}):
        app_id = summary["Labels"][LABEL_APP_ID]
        running[app_id] = running.get(app_id, False) or summary["State"] not in ("exited", "dead")
    removed = 0
    for network in client.api.networks(filters={"label": LABEL_APP_ID}):
        # an app without containers may be one that is just being submitted
        if running.get(network["Labels"][LABEL_APP_ID], True):
            continue
        for _ in range(_RELEASE_ATTEMPTS):
            try:
                client.api.remove_network(network["Id"])
                removed += 1
                break
            except docker.errors.APIError as e:
                if not is_status(e, 403):
                    break  # somebody else has removed it
                # a container that has just ended lets go of it a moment later
                time.sleep(_RELEASE_PAUSE)
    return removed
